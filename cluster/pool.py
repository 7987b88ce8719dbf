"""Independent pieces of work, each one task: what is done comes back as it is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from .session import Session
from .threads import one_blas_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from distributed import Client, Future

T = TypeVar("T")

WORKER_TIMEOUT = 300.0
AHEAD = 2  # tasks given to the cluster for each thread


def as_done(
    function: Callable[..., T],
    pieces: Sequence[tuple[Any, ...]],
    client: Client | None = None,
    *,
    worker_timeout: float = WORKER_TIMEOUT,
) -> Iterator[tuple[int, T]]:
    """Yield (position, ``function(*piece)``) of every piece; in order without a client, else as they end.

    A piece whose worker dies is begun again elsewhere, so the function must be able to find its work half
    done, or done.

    Raises
    ------
    ClusterLost
        If the cluster is gone; what has been yielded is done.
    """
    if client is None:
        for position, piece in enumerate(pieces):
            yield position, _alone(function, piece)
        return
    waiting = list(reversed(range(len(pieces))))
    running: dict[Future, int] = {}
    with Session(client, worker_timeout, hints=False) as session:
        while waiting or running:
            while waiting and len(running) < max(1, AHEAD * sum(session.workers().values())):
                position = waiting.pop()
                future = session.submit(
                    "bitfleet-piece", _alone, function, pieces[position], index=(position,)
                )
                running[future] = position
            ended = session.next_ended()
            yield running.pop(ended), session.result(ended)


def _alone(function: Callable[..., T], piece: tuple[Any, ...]) -> T:
    with one_blas_thread():
        return function(*piece)
