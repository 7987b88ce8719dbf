"""The distributed executor: the serial executor's sums, computed by the workers of a Dask cluster.

A task computes one leaf, or one small subtree where there are many leaves; the nodes above are merged by the
workers that hold their parts, and only the finished summary comes back.  What enters the graph is the frozen
program, the reader, the reference to the committed state and row ranges: a few hundred bytes a task.  A piece
that is lost with its worker is computed again from there, so nothing is ever scattered.

The driver holds the pieces in flight and one open node per level and worker, whatever the number of leaves.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from distributed.comm import CommClosedError

from ..tasks.protocols import BlockPair, RowIndices, RowRange
from . import fingerprint, memory_use, tree, worker
from .embedded import ensure_small
from .errors import ClusterError, ClusterLost
from .placement import Placement
from .session import RESUME, Session, Stranded, list_workers, reaching
from .sizes import MAX_LEAVES_PER_TASK, carried_leaves_per_task, leaves_per_task
from .worker import Piece, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from distributed import Client, Future

    from ..tasks.protocols import BlockAddress, BlockFunction, BlockReader, Program, StateReference

T = TypeVar("T")

ADDRESS_BYTES_PER_TASK = 200_000
BYTES_PER_ADDRESS, BYTES_PER_INDEX = 50, 5  # pickled, at most
IN_FLIGHT_PER_THREAD = 2  # one at work, one ready
ANYWHERE = ""  # where pieces are sent while there is no worker


class DaskExecutor:
    """Adds up over blocks on a Dask cluster; returns the bits that `SerialExecutor` returns.

    Parameters
    ----------
    client : distributed.Client
        A connected, synchronous client; it is not closed here.
    allow_environment_change : bool
        Accept workers whose libraries or processors differ from the driver's.
    worker_timeout : float
        Seconds to wait for a first worker, or for another one when all are gone.

    Raises
    ------
    EnvironmentMismatch
        If a worker would compute other bits; workers that join later are checked by their first task.
    ClusterLost
        If the cluster cannot be reached or has no worker in time.
    """

    def __init__(
        self, client: Client, *, allow_environment_change: bool = False, worker_timeout: float = 300.0
    ) -> None:
        self.client = client
        self._worker_timeout = worker_timeout
        self._environment = None if allow_environment_change else fingerprint.environment()
        _wait_for_worker(client, worker_timeout)
        if self._environment is not None:
            check_workers(client, self._environment)

    def reduce(
        self,
        reader: BlockReader,
        addresses: Sequence[BlockAddress],
        program: Program,
        reference: StateReference,
        *,
        fan_in: int = 8,
    ) -> dict[str, np.ndarray]:
        """Return the finalized sum over all addresses; of no addresses, the finalized neutral element.

        Raises
        ------
        GraphTooLarge
            If the program, the reader or the reference carries data instead of saying where it is.
        ClusterLost
            If the scheduler or the client is gone, or workers keep dying.
        EnvironmentMismatch
            If a worker that has joined meanwhile would compute other bits.
        """
        tree.check(len(addresses), fan_in)
        work = self._work(program, reader, reference)

        def talk(session: Session) -> dict[str, np.ndarray]:
            root: list[Future] = []
            if addresses:
                sequential, carries = session.wait_for(session.submit("bitfleet-start", worker.probe, work))
                if sequential:
                    root = [_add_in_order(session, work, addresses)]
                else:
                    root = [_add_in_tree(session, work, addresses, fan_in, carries=carries)]
            summary = session.submit("bitfleet-finish", worker.finish, work, *root, priority=10)
            return session.wait_for(summary)

        return self._in_session(talk)

    def map(
        self,
        function: BlockFunction,
        reader: BlockReader,
        addresses: Sequence[BlockAddress],
        reference: StateReference,
    ) -> list[dict[str, Any]]:
        """Run ``function(state, block)`` on each address; results in the order of the addresses.

        A block may be processed twice if a worker dies: the function must write the same again.  Raises as
        `reduce` does.
        """
        work = self._work(function, reader, reference)
        results: list[dict[str, Any] | None] = [None] * len(addresses)

        def talk(session: Session) -> None:
            def submit(piece: Piece, where: str) -> Future:
                return session.submit(
                    "bitfleet-map", worker.map_piece, work, piece, index=piece.span, worker=where or None
                )

            for span, future in _stream(session, work.reader, addresses, fan_in=8, submit=submit):
                results[span.start : span.stop] = session.result(future)

        self._in_session(talk)
        return results  # type: ignore[return-value]

    def peak_bytes(self) -> list[int]:
        """Return the most memory that the process of each worker has taken, of those that answer soon."""
        return memory_use.peaks_of_workers(self.client)

    def _in_session(self, talk: Callable[[Session], T]) -> T:
        """Do the work; where the last worker died and stranded tasks, once more, without hints."""
        try:
            with Session(self.client, self._worker_timeout) as session:
                return talk(session)
        except Stranded:
            with Session(self.client, self._worker_timeout, hints=False) as session:
                return talk(session)

    def _work(self, program: Any, reader: BlockReader, reference: StateReference) -> Work:
        ensure_small({"program": program, "reader": reader, "reference": reference})
        return Work(program, reader, reference, self._environment)


def check_workers(client: Client, expected: dict[str, str]) -> None:
    """Compare every worker's environment with the expected one.

    A worker that dies while it is asked is passed over: whoever takes its place is checked by its first task.

    Raises
    ------
    EnvironmentMismatch
        Naming the worker and the fields that differ.
    ClusterError
        If a worker cannot even import or run this package.
    """
    with reaching(client):
        found = client.run(fingerprint.environment, on_error="return")
    for address, env in sorted(found.items()):
        if isinstance(env, CommClosedError):
            continue
        if isinstance(env, BaseException):  # Dask may pass on no more than the error's text
            raise ClusterError(
                f"worker {address} cannot run bitfleet ({env}). Install the driver's packages there."
            ) from env
        fingerprint.check(expected, env, f"worker {address}")


def _add_in_tree(
    session: Session, work: Work, addresses: Sequence[BlockAddress], fan_in: int, *, carries: bool
) -> Future:
    """Submit all leaves and merges; return the root's future."""
    if carries:  # any tree will do
        fan_in = 2

    def merge(node: tree.Span, parts: list[Future]) -> Future:
        return session.submit("bitfleet-merge", worker.merge_parts, work, *parts, index=node, priority=10)

    assembly = tree.Assembly(len(addresses), fan_in, merge)

    def submit(piece: Piece, where: str) -> Future:
        future = session.submit(
            "bitfleet-sum", worker.sum_piece, work, piece, fan_in, index=piece.span, worker=where or None
        )
        assembly.add(piece.span, future)
        return future

    for _ in _stream(session, work.reader, addresses, fan_in=fan_in, submit=submit, carries=carries):
        pass
    return assembly.root


def _add_in_order(session: Session, work: Work, addresses: Sequence[BlockAddress]) -> Future:
    """Fold a sequential accumulator over all addresses: one task after the other, most often just one."""
    before: list[Future] = []
    for piece in _pieces(addresses, _most_addresses(addresses)):
        future = session.submit(
            "bitfleet-fold", worker.continue_in_order, work, piece, *before, index=piece.span
        )
        before = [future]
    return before[0]


def _stream(
    session: Session,
    reader: BlockReader,
    addresses: Sequence[BlockAddress],
    *,
    fan_in: int,
    submit: Callable[[Piece, str], Future],
    carries: bool = False,
) -> Iterator[tuple[tree.Span, Future]]:
    """Submit the pieces, a few per worker at a time; yield each as it ends."""
    threads = session.workers()
    most = min(MAX_LEAVES_PER_TASK, _most_addresses(addresses))
    leaf_bytes = _leaf_bytes(reader, addresses)
    if carries:  # the more leaves a task has, the less it does for each
        size = carried_leaves_per_task(len(addresses), sum(threads.values()), most)
    else:
        size = leaves_per_task(len(addresses), sum(threads.values()), fan_in, most, leaf_bytes)
    spans = list(tree.subtrees(len(addresses), size))
    placement = Placement(
        [_position(reader, addresses, span) for span in spans], _slots(threads), IN_FLIGHT_PER_THREAD
    )
    homes: dict[Future, tuple[tree.Span, str]] = {}
    while True:
        for number, where in placement.take():
            following = placement.following(number)
            ahead = None if following is None else addresses[spans[following].start]
            piece = _piece(addresses, spans[number], ahead)
            homes[submit(piece, where)] = (piece.span, where)
        if not homes:
            return
        future = session.next_ended()
        if future in homes:
            span, where = homes.pop(future)
            placement.done(where)
            yield span, future
        placement.update(_slots(session.workers()))


def _pieces(addresses: Sequence[BlockAddress], size: int) -> Iterator[Piece]:
    return (_piece(addresses, span) for span in tree.subtrees(len(addresses), size))


def _piece(addresses: Sequence[BlockAddress], span: tree.Span, ahead: BlockAddress | None = None) -> Piece:
    following = ahead if isinstance(ahead, RowRange) else None  # all that can be read ahead, and small
    piece = Piece(span, tuple(addresses[span.start : span.stop]), following)
    ensure_small({"address": piece})
    return piece


def _most_addresses(addresses: Sequence[BlockAddress]) -> int:
    """Return how many of the addresses one task may carry."""
    longest = max((len(address) for address in addresses if isinstance(address, RowIndices)), default=0)
    return max(1, ADDRESS_BYTES_PER_TASK // (BYTES_PER_ADDRESS + BYTES_PER_INDEX * longest))


def _leaf_bytes(reader: BlockReader, addresses: Sequence[BlockAddress]) -> float:
    """Return how large one leaf's rows are in memory; infinite for pairs, whose work is not in proportion."""
    if not addresses or isinstance(addresses[0], BlockPair):
        return math.inf
    return len(addresses[0]) * reader.n_features * np.dtype(reader.dtype).itemsize


def _position(reader: BlockReader, addresses: Sequence[BlockAddress], span: tree.Span) -> float:
    """Return where a piece lies in the data, from 0 to 1."""
    address = addresses[span.start]
    if isinstance(address, BlockPair):
        address = address.left
    if isinstance(address, RowRange):
        return address.start / max(1, reader.n_rows)
    return span.start / len(addresses)


def _slots(threads: dict[str, int]) -> dict[str, int]:
    slots = {address: IN_FLIGHT_PER_THREAD * n_threads for address, n_threads in threads.items()}
    return slots or {ANYWHERE: IN_FLIGHT_PER_THREAD}


def _wait_for_worker(client: Client, timeout: float) -> None:
    if not list_workers(client):
        try:
            with reaching(client):
                client.wait_for_workers(1, timeout=timeout)
        except ClusterLost as error:
            raise ClusterLost(f"no worker has arrived in {timeout:g} s. {RESUME}") from error
