"""Search by the weighted Hamming affinity of multidimensional spectral hashing (Weiss et al., 2012)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..storage.codes import Codes
from .code_inputs import check_count, check_same_model, loaded, stored_codes
from .errors import ConfigError
from .model import as_model

if TYPE_CHECKING:
    import os

    import numpy as np

    from .model import ModelLike


def weighted_hamming(
    codes: np.ndarray | Codes | str | os.PathLike[str],
    queries: np.ndarray | Codes | str | os.PathLike[str],
    k: int,
    *,
    model: ModelLike,
) -> tuple[np.ndarray, np.ndarray]:
    """Return each query's ``k`` codes of largest affinity, as the model weighs its bits.

    Of `MDSH` that is ``Π_i (λ_i0 + Σ_j λ_ij y_ij y'_ij)``, with bits y of -1 and 1 of the functions j of
    coordinates i; with ``products=True`` it is ``λ_0 + Σ_j λ_j y_j y'_j``.  It stands for
    ``exp(-‖x - x'‖² / 2σ²)`` of the rows.

    Parameters
    ----------
    codes, queries : ndarray of uint8, shape (n, w) and (q, w), Codes, or path
        Packed codes that the model made.
    k : int
        All of them where there are not so many.
    model : Model, path, or fitted estimator
        Of `MDSH`.

    Returns
    -------
    affinities : ndarray of float64, shape (q, k)
        Falling.
    ids : ndarray of int64, shape (q, k)
        Numbers of the codes, rising among equal affinities.

    Raises
    ------
    ConfigError
        If ``k`` is less than 1, the model does not weigh its bits, or the codes are not its own.

    Examples
    --------
    >>> import numpy as np, bitfleet as bf
    >>> X = np.random.default_rng(0).random((300, 4))
    >>> mdsh = bf.MDSH(n_bits=32).fit(X)
    >>> codes = mdsh.encode(X)
    >>> affinities, ids = bf.weighted_hamming(codes, codes[:2], 3, model=mdsh)
    >>> bool((affinities[:, :1] >= affinities).all())
    True
    """
    check_count("k", k)
    model = as_model(model)
    method: Any = model.method
    if not hasattr(method, "affinity"):
        raise ConfigError(
            f"expected a model that weighs its bits, such as mdsh, got one of {method.name}; "
            "search its codes with bitfleet.search or CodeIndex"
        )
    affinity = method.affinity(model.state)
    given = [stored_codes(each) for each in (codes, queries)]
    check_same_model(*given)
    for each in given:
        if isinstance(each, Codes) and each.model_digest != model.encoder_digest:
            raise ConfigError(
                f"{each.path} was encoded by the model {each.model_digest[:12]}, "
                f"not by {model.encoder_digest[:12]}"
            )
    base, asked = (loaded(each, affinity.n_bits, None)[0] for each in given)
    return affinity.nearest(base, asked, min(int(k), len(base)))  # type: ignore[no-any-return]
