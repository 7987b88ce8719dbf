"""Decoders against numpy.linalg.lstsq, explicit reconstructions and brute-force distances."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from bitfleet.tasks.decoder import Decoder, DecoderSums, fit, space_of
from bitfleet.tasks.kernels import accumulate, decoding, exact
from bitfleet.tasks.least_squares import CUTOFF, solve_gram
from bitfleet.tasks.methods.base import Front
from bitfleet.tasks.protocols import Block, LeafPlan
from bitfleet.tasks.registry import get
from bitfleet.tasks.sbiht import SparseHardThresholding
from hypothesis import given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable

    from bitfleet.tasks.protocols import RoundState

METHODS: dict[str, Any] = {
    "posh": get("posh")(n_bits=80, n_active=6, n_epochs=3),
    "posh in components": get("posh")(n_bits=80, n_active=6, n_epochs=3, n_components=5),
    "itq": get("itq")(n_bits=9, n_iter=3),
    "lsh longer than rows": get("lsh")(n_bits=40),
    "not centred": get("fruit_fly")(n_bits=50, n_active=5, center=False),
}
all_methods = pytest.mark.parametrize("name", METHODS)


def rows(n: int = 300, d: int = 16) -> np.ndarray:
    rng = np.random.default_rng(4)
    centres = 3 * rng.normal(size=(6, d))
    X = centres[rng.integers(0, 6, n)] + rng.normal(size=(n, d)) + 2
    return X.astype(np.float32)


def sums(method: Any, state: RoundState, X: np.ndarray, block_rows: int = 77) -> dict[str, np.ndarray]:
    accumulator = DecoderSums(method).accumulator(state)
    total = accumulator.init()
    for leaf in LeafPlan(len(X), block_rows).leaves():
        block = Block(np.arange(leaf.start, leaf.stop), X[leaf.start : leaf.stop])
        total = accumulator.merge(total, accumulator.update(accumulator.init(), block))
    return accumulator.finalize(total)


def fitted(
    name: str, train: Callable[..., list[RoundState]], ridge: float = 1.0
) -> tuple[Decoder, RoundState, np.ndarray]:
    method, X = METHODS[name], rows()
    state = train(method, X)[-1]
    front = space_of(state, X.shape[1])
    return fit(sums(method, state, X), front, dense=not method.sparse, ridge=ridge), state, X


def design(name: str, state: RoundState, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """H and the rows in the method's coordinates, the plain way."""
    method = METHODS[name]
    bits = np.unpackbits(method.encoder(state).encode(X), axis=1, bitorder="little", count=method.n_bits)
    codes = bits.astype(float) if method.sparse else 2.0 * bits - 1
    centred = X.astype(float) - state.arrays["mean"]
    return codes, centred @ state.arrays["components"] if "components" in state.arrays else centred


@all_methods
def test_sums_are_those_of_the_whole_matrices(name: str, train: Callable[..., list[RoundState]]) -> None:
    method, X = METHODS[name], rows()
    state = train(method, X)[-1]
    codes, inputs = design(name, state, X)
    found = sums(method, state, X)
    np.testing.assert_array_equal(found["gram"], codes.T @ codes)
    np.testing.assert_allclose(found["cross"], codes.T @ inputs, atol=1e-9)
    assert found["square"] == pytest.approx((inputs**2).sum(), rel=1e-12)
    assert found["count"] == len(X)


@all_methods
def test_without_ridge_reconstructions_are_those_of_lstsq(
    name: str, train: Callable[..., list[RoundState]]
) -> None:
    decoder, state, X = fitted(name, train, ridge=0)
    codes, inputs = design(name, state, X)
    expected = codes @ np.linalg.lstsq(codes, inputs, rcond=None)[0]
    found = decoder.reconstruct(METHODS[name].encoder(state).encode(X))
    assert np.linalg.norm(found - expected) <= 1e-6 * np.linalg.norm(expected)
    if METHODS[name].sparse:
        assert np.linalg.matrix_rank(codes) < METHODS[name].n_bits  # singular, so that it says something


@all_methods
def test_ridge_is_lstsq_with_more_rows(name: str, train: Callable[..., list[RoundState]]) -> None:
    decoder, state, X = fitted(name, train, ridge=2.5)
    codes, inputs = design(name, state, X)
    n_bits = codes.shape[1]
    more = np.concatenate([codes, np.sqrt(2.5) * np.eye(n_bits)])
    zeros = np.zeros((n_bits, inputs.shape[1]))
    expected = np.linalg.lstsq(more, np.concatenate([inputs, zeros]), rcond=None)[0]
    np.testing.assert_allclose(decoder.matrix, expected, atol=1e-9)


@all_methods
def test_decoded_vectors_are_like_the_rows(name: str, train: Callable[..., list[RoundState]]) -> None:
    decoder, state, X = fitted(name, train)
    codes = METHODS[name].encoder(state).encode(X)
    decoded = decoder.decode(codes)
    assert decoded.shape == X.shape
    mean = 0 * X.mean(axis=0) if name == "not centred" else X.mean(axis=0)
    assert ((decoded - X) ** 2).sum() < 0.5 * ((X - mean) ** 2).sum()
    components = state.arrays.get("components", np.eye(X.shape[1]))
    expected = design(name, state, X)[0] @ decoder.matrix @ components.T + state.arrays["mean"]
    np.testing.assert_allclose(decoded, expected, atol=1e-9)


@all_methods
def test_looked_up_distances_are_those_to_the_reconstructions(
    name: str, train: Callable[..., list[RoundState]]
) -> None:
    decoder, state, X = fitted(name, train)
    codes = METHODS[name].encoder(state).encode(X)
    query_rows, code_rows = np.divmod(np.arange(20 * len(X)), len(X))
    found = decoder.tables(X[:20]).distances(codes, decoder.norms(codes), query_rows, code_rows)
    matrix, inputs = design(name, state, X)
    expected = ((inputs[:20, None] - (matrix @ decoder.matrix)[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(found.reshape(20, -1), expected, rtol=1e-9, atol=1e-9)


@all_methods
def test_numbers_are_functions_of_their_rows_with_and_without_numba(
    name: str, train: Callable[..., list[RoundState]], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder, state, X = fitted(name, train)
    codes = METHODS[name].encoder(state).encode(X)
    pairs = np.arange(30), np.arange(30)[::-1].copy()

    def everything(part: slice) -> list[bytes]:
        tables = decoder.tables(X[part])
        return [decoder.decode(codes[part]).tobytes(), decoder.norms(codes[part]).tobytes(),
                tables.look_ups.tobytes(), tables.constants.tobytes()]  # fmt: skip

    def distances() -> bytes:
        return decoder.tables(X[:30]).distances(codes, decoder.norms(codes), *pairs).tobytes()

    whole, single = everything(slice(0, 30)), [everything(slice(i, i + 1)) for i in range(30)]
    assert whole == [b"".join(parts) for parts in zip(*single, strict=True)]
    looked_up, summed = distances(), sums(METHODS[name], state, X)
    for module in (accumulate, decoding, exact):
        monkeypatch.setattr(module, "loops", lambda: None)
    assert everything(slice(0, 30)) == whole
    assert distances() == looked_up
    for key, value in sums(METHODS[name], state, X).items():
        np.testing.assert_array_equal(value, summed[key])


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 12).flatmap(
        lambda b: st.tuples(st.just(b), st.lists(st.integers(0, 2**b - 1), max_size=8), st.integers(0, 99))
    )
)
def test_kernels_are_matrix_products_of_bits(drawn: tuple[int, list[int], int]) -> None:
    n_bits, numbers, seed = drawn
    rng = np.random.default_rng(seed)
    bits = np.array([[n >> j & 1 for j in range(n_bits)] for n in numbers], np.uint8).reshape(-1, n_bits)
    codes = np.packbits(bits, axis=1, bitorder="little")
    table, start = rng.normal(size=(n_bits, 3)), rng.normal(size=3)
    np.testing.assert_allclose(decoding.sum_rows(codes, table, start), start + bits @ table, atol=1e-12)
    tables = rng.normal(size=(2, n_bits))
    q, c = np.divmod(np.arange(2 * len(bits)), max(1, len(bits)))
    found = decoding.look_up(tables, codes, q, c).reshape(2, len(bits))
    np.testing.assert_allclose(found, tables @ bits.T, atol=1e-12)


def test_pseudo_inverse_drops_what_the_cut_off_says() -> None:
    values = np.array([4.0, 1.0, 4.0 * 4 * CUTOFF * 0.5, 0.0])
    found = solve_gram(np.diag(values), np.ones((4, 1)))
    np.testing.assert_allclose(found[:, 0], [0.25, 1.0, 0.0, 0.0])
    kept = solve_gram(np.diag([4.0, 1.0, 4.0 * 4 * CUTOFF * 2, 0.0]), np.ones((4, 1)))
    assert kept[2, 0] == pytest.approx(1 / (4.0 * 4 * CUTOFF * 2))
    assert not solve_gram(np.zeros((3, 3)), np.zeros((3, 2))).any()


def test_a_ridge_lost_in_rounding_still_gives_numbers() -> None:
    ones = np.full((3, 3), 1e20)
    np.testing.assert_allclose(solve_gram(ones, np.full((3, 1), 3e20), 1e-9).sum(), 3.0)


def test_what_cannot_be_solved_or_decoded_is_refused() -> None:
    with pytest.raises(ValueError, match="ridge >= 0, got -1"):
        solve_gram(np.eye(2), np.eye(2), -1)
    with pytest.raises(ValueError, match="ridge >= 0, got nan"):
        solve_gram(np.eye(2), np.eye(2), float("nan"))
    with pytest.raises(ValueError, match="finite sums"):
        solve_gram(np.full((2, 2), np.inf), np.eye(2))
    front = Front(np.zeros(3))
    with pytest.raises(ValueError, match=r"shape \(n_bits, 3\)"):
        Decoder(np.zeros((4, 2)), front, dense=True, ridge=1.0)
    for matrix, broken, message in (
        (np.full((4, 3), np.nan), front, "finite numbers, its matrix holds"),
        (np.zeros((4, 3)), Front(np.array([0, np.nan, 0])), "its mean holds"),
        (np.zeros((4, 2)), Front(np.zeros(3), np.full((3, 2), np.inf)), "its components holds"),
        (np.zeros((4, 3)), Front(np.zeros(3, complex)), "its mean holds"),
        (np.zeros((4, 2)), Front(np.zeros(3), np.zeros((4, 2))), r"components of shape \(d, r\)"),
        (np.zeros((4, 3)), Front(np.zeros((3, 1))), r"mean of shape \(d,\)"),
    ):
        with pytest.raises(ValueError, match=message):
            Decoder(matrix, broken, dense=True, ridge=1.0)
    decoder = Decoder(np.zeros((12, 3)), front, dense=False, ridge=1.0)
    with pytest.raises(ValueError, match=r"shape \(m, 2\), got uint8 of shape \(1, 3\)"):
        decoder.decode(np.zeros((1, 3), np.uint8))
    with pytest.raises(ValueError, match="padding bits"):
        decoder.decode(np.full((1, 2), 255, np.uint8))
    none = {"gram": np.zeros((2, 2)), "cross": np.zeros((2, 1)), "count": np.zeros((), np.int64)}
    with pytest.raises(ValueError, match="at least one row"):
        fit(none, Front(np.zeros(1)), dense=False)


def literal_algorithm_4(
    code: np.ndarray, weights: np.ndarray, start: np.ndarray, n_iter: int
) -> list[tuple[np.ndarray, float]]:
    """Algorithm 4 for one code, as printed: weights (D, r)."""
    x, found = start, []
    for _ in range(n_iter + 1):
        own = np.zeros(len(code))
        own[np.argsort(-(weights @ x), kind="stable")[: int(code.sum())]] = 1
        found.append((x, ((own - code) ** 2).sum()))
        x = x - weights.T @ (own - code) / np.sqrt(weights.size)
    return found


def thresholding(
    train: Callable[..., list[RoundState]],
) -> tuple[SparseHardThresholding, np.ndarray, np.ndarray]:
    decoder, state, X = fitted("posh", train)
    method = METHODS["posh"]
    codes = method.encoder(state).encode(X)
    return SparseHardThresholding(decoder, method.weights(state), 6), codes, state.arrays["weights"]


def test_iterates_are_those_of_algorithm_4(train: Callable[..., list[RoundState]]) -> None:
    sbiht, codes, weights = thresholding(train)
    start = sbiht.decoder.reconstruct(codes)
    bits = np.unpackbits(codes, axis=1, bitorder="little", count=80)
    literal = [literal_algorithm_4(bits[i].astype(float), weights, start[i], 12) for i in range(10)]
    for k, (x, error) in zip(range(13), sbiht.iterates(codes[:10]), strict=False):
        np.testing.assert_allclose(x, [steps[k][0] for steps in literal], atol=1e-9)
        np.testing.assert_array_equal(error, [steps[k][1] for steps in literal])


def test_the_loss_falls_and_codes_of_reconstructions_come_nearer(
    train: Callable[..., list[RoundState]],
) -> None:
    sbiht, codes, _ = thresholding(train)
    losses = [error.sum() for _, (_, error) in zip(range(40), sbiht.iterates(codes), strict=False)]
    assert losses[-1] < 0.5 * losses[0]
    assert (np.diff(losses[:10]) <= 0).all()
    kept = [
        np.bitwise_count(sbiht.encoder.encode(sbiht.reconstruct(codes, n)) ^ codes).sum(axis=1)
        for n in (0, 1, 5, 20)
    ]
    assert all((late <= early).all() for early, late in pairwise(kept))
    np.testing.assert_array_equal(sbiht.reconstruct(codes, 0), sbiht.decoder.reconstruct(codes))


def test_sbiht_is_for_sparse_codes(train: Callable[..., list[RoundState]]) -> None:
    decoder, state, _ = fitted("itq", train)
    with pytest.raises(ValueError, match="sparse codes"):
        SparseHardThresholding(decoder, METHODS["itq"].weights(state), 3)
