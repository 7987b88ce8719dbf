"""What every registered method promises, whatever it learns."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest
from bitfleet.tasks.kernels import accumulate, coding, decoding, euclidean, exact, pack, pursuit, walk, wta
from bitfleet.tasks.moments import Moments
from bitfleet.tasks.protocols import Block, BlockPair, DataInfo, LeafPlan, RoundState, RowIndices
from bitfleet.tasks.registry import METHODS, get

SMALL = {"n_bits": 12, "n_active": 3, "n_iter": 3, "n_epochs": 3, "n_components": None}
SHIFTED = ("sklsh",)  # random offsets: the mean is a point like any other
OWN: dict[str, dict[str, Any]] = {
    "sign": {"n_bits": None},  # at most a bit a feature
    "nibh": {"n_steps": 8, "n_train": 100},
    "bre": {"n_train": 60, "n_pairs": 9, "n_mixed": 4, "n_iter": 1},
}


def build(name: str, **parameters: Any) -> Any:
    """A small method: of the parameters those that it has."""
    fields = get(name).__dataclass_fields__
    table = {**SMALL, **OWN.get(name, {}), **parameters}
    return get(name)(**{k: v for k, v in table.items() if k in fields})


def summed(method: Any, state: RoundState, X: np.ndarray, block_rows: int) -> dict[str, np.ndarray]:
    """One round, leaf by leaf."""
    accumulator = method.accumulator(state)
    total = None

    def read(address: Any) -> Any:
        if isinstance(address, BlockPair):
            return read(address.left), read(address.right)
        some = isinstance(address, RowIndices)
        rows = np.array(address.rows) if some else np.arange(address.start, address.stop)
        vectors = np.ascontiguousarray(X[rows])
        vectors.setflags(write=False)
        return Block(rows, vectors, np.where(rows % 3 < 2, rows % 5, -1))

    for address in method.blocks(state, LeafPlan(len(X), block_rows)):
        block = read(address)
        if accumulator.sequential:
            total = accumulator.update(accumulator.init() if total is None else total, block)
        else:
            leaf = accumulator.update(accumulator.init(), block)
            total = leaf if total is None else accumulator.merge(total, leaf)
    assert total is not None
    return accumulator.finalize(total)


def through_storage(state: RoundState) -> RoundState:
    """What a checkpoint gives back: JSON scalars, arrays without identity, read-only, other key order."""
    scalars = json.loads(json.dumps(dict(state.scalars), allow_nan=False, sort_keys=True))
    arrays = {key: np.array(state.arrays[key]) for key in sorted(state.arrays, reverse=True)}
    for array in arrays.values():
        array.setflags(write=False)
    return RoundState(state.round, arrays, scalars)


def train(method: Any, X: np.ndarray, *, block_rows: int = 16, store: bool = False) -> RoundState:
    state = method.start(DataInfo(len(X), X.shape[1], str(X.dtype)), 0)
    return trained_from(state, method, X, block_rows, store=store)


def trained_from(
    state: RoundState, method: Any, X: np.ndarray, block_rows: int, *, store: bool = False
) -> RoundState:
    while not method.done(state):
        if store:
            state = through_storage(state)
            method = pickle.loads(pickle.dumps(method))
        state = method.advance(state, summed(method, state, X, block_rows))
    return state


def assert_same_bits(left: RoundState, right: RoundState) -> None:
    assert left.round == right.round
    assert left.scalars == right.scalars
    assert left.arrays.keys() == right.arrays.keys()
    for key, array in left.arrays.items():
        assert array.dtype == right.arrays[key].dtype
        assert array.tobytes() == right.arrays[key].tobytes()


def data(dtype: str, n: int = 90, d: int = 10) -> np.ndarray:
    rng = np.random.default_rng(1)
    return (rng.normal(size=(n, d)) * np.linspace(3, 1, d) + 2).astype(dtype)


CASES = [
    *[(name, {}) for name in METHODS],
    ("posh", {"schedule": "union"}),
    ("posh", {"schedule": "paper", "batch_size": 20}),
    ("spherical_hash", {"dead_units": "reseed", "n_bits": 60}),
    ("knnh", {"neighbors_from": "all", "n_train": 40}),
    ("nibh", {"solver": "admm", "n_steps": 3}),
    ("nibh_cg", {"n_polish": 2, "n_moves": 5}),
    ("nibh_cg", {"solver": "admm", "fix_scale": True, "max_secants": 200, "max_age": 1}),
    ("nibh", {"preset": "calibrated", "batch_size": 20, "n_train": 40}),
    ("biohash", {"batch_size": 20}),
    ("pursuit_hash", {"n_rounds": 2, "n_components": 5, "n_refine": 2, "n_balance": 2}),
    ("pursuit_hash", {"dictionary": "rows", "n_balance": 1}),
    ("posh", {"assign": "greedy"}),
    ("sparse_coding", {"n_exchanges": 0, "n_components": 5, "center": False}),
    ("fruit_fly", {"matrix": "orthogonal"}),
    ("sign", {"center": True, "n_bits": 7}),
    ("shd", {"n_iter": 21, "n_train": 40, "mean_tolerance": 0.0}),
    ("mdsh", {"products": True}),
    ("eigenfunction_ssh", {"n_label_bits": 5, "n_functions": 20}),
    ("agh", {"n_layers": 2, "n_anchors": 40}),
    ("klsh", {"kernel": "linear", "n_anchors": 40}),
    ("ssbc", {"n_bits": 3, "n_anchors": 40, "sketch_size": 4}),
    ("ssbc", {"sketch_rows": "train", "center": False, "drop_first": 1}),
    ("ssbc", {"n_bits": 3, "n_anchors": 40, "mode": "online"}),
]
IDS = ["-".join([name, *map(str, parameters.values())]) for name, parameters in CASES]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "parameters"), CASES, ids=IDS)
def test_stopping_between_any_rounds_changes_no_bit(name: str, parameters: dict, dtype: str) -> None:
    method, X = build(name, **parameters), data(dtype)
    assert_same_bits(train(method, X), train(method, X, store=True))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "parameters"), CASES, ids=IDS)
def test_numpy_kernels_give_the_same_bits(
    name: str, parameters: dict, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, X = build(name, **parameters), data(dtype)
    expected = train(method, X)
    codes = method.encoder(expected).encode(X)
    for module in (accumulate, coding, decoding, euclidean, exact, pack, pursuit, walk, wta):
        monkeypatch.setattr(module, "loops", lambda: None)
    state = train(method, X)
    assert_same_bits(state, expected)
    np.testing.assert_array_equal(method.encoder(state).encode(X), codes)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "parameters"), CASES, ids=IDS)
def test_a_code_is_a_function_of_its_row(name: str, parameters: dict, dtype: str) -> None:
    method, X = build(name, **parameters), data(dtype, n=1203)
    encoder = method.encoder(train(method, X, block_rows=400))
    X[5] = X[6] = X[1100]
    whole = encoder.encode(X)
    for size, offsets in ((1, [0]), (2, [0, 1]), (7, range(7)), (1000, [0, 1, 203, 999])):
        for offset in offsets:
            cuts = np.arange(offset, len(X), size)
            np.testing.assert_array_equal(
                np.concatenate([encoder.encode(p) for p in np.split(X, cuts)]), whole
            )
    np.testing.assert_array_equal(whole[5], whole[1100])


def degenerate() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(30, 10)).astype(np.float32)
    some_constant = X.copy()
    some_constant[:, [0, 4, 9]] = np.float32(0.1)
    return {
        "constant features": some_constant,
        "all constant": np.full((30, 10), np.float32(0.1)),
        "zero rows": np.zeros((30, 10), np.float32),
        "duplicated rows": np.repeat(X[:2], 15, axis=0),
        "fewer rows than bits": X[:5],
        "one row": X[:1],
        "one feature": X[:, :1].copy(),
        "fewer features than bits": X[:, :3].copy(),
        "more features than bits": rng.normal(size=(30, 40)).astype(np.float32),
        "far from the origin": X + np.float32(1e6),
        "one enormous row": np.concatenate([X, np.full((1, 10), np.float32(1e15))]),
    }


@pytest.mark.parametrize("what", degenerate())
@pytest.mark.parametrize(("center", "dtype"), [(True, "float32"), (False, "float32"), (True, "float64")])
@pytest.mark.parametrize(
    ("name", "schedule"), [*((name, "auto") for name in METHODS), ("posh", "union"), ("posh", "paper")]
)
def test_degenerate_data_gives_codes(name: str, schedule: str, center: bool, dtype: str, what: str) -> None:
    own = {"batch_size": 1} if schedule == "paper" else {}
    method, X = build(name, center=center, schedule=schedule, **own), degenerate()[what].astype(dtype)
    state = train(method, X)
    assert all(np.isfinite(array).all() for array in state.arrays.values())
    json.dumps(dict(state.scalars), allow_nan=False)
    n_bits = X.shape[1] if name == "sign" else 12
    codes = method.encoder(state).encode(X)
    assert codes.shape == (len(X), -(-n_bits // 8))
    bits = pack.unpack_bits(codes, n_bits)
    assert not (codes[:, -1] >> ((n_bits - 1) % 8 + 1)).any()
    if method.sparse:
        assert (bits.sum(axis=1) == 3).all()
    if what in ("zero rows", "all constant") and center and name not in SHIFTED:
        assert bits[0].tolist() == ([1] * 3 + [0] * 9 if method.sparse else [1] * n_bits)
    assert len(np.unique(codes, axis=0)) <= len(np.unique(X, axis=0))


@pytest.mark.parametrize("name", METHODS)
def test_nan_and_infinity_never_become_a_model(name: str) -> None:
    for bad in (np.nan, np.inf, -np.inf):
        X = data("float32")
        X[17, 3] = bad
        with pytest.raises(ValueError, match="row 17 holds NaN or infinity"):
            train(build(name, center=True), X)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize(("name", "parameters"), CASES, ids=IDS)
def test_nor_do_they_where_the_moments_of_other_rows_are_given(name: str, parameters: dict) -> None:
    X, method = data("float32"), build(name, **parameters)
    moments = Moments(10).finalize(Moments(10).update(Moments(10).init(), Block(np.arange(90), X)))
    state = method.start(DataInfo(90, 10), 0, moments)
    X[17, 3] = np.nan
    if not method.done(state):
        with pytest.raises(ValueError, match="finite"):  # at the latest when all rows have been seen
            trained_from(state, method, X, 16)


@pytest.mark.parametrize("name", METHODS)
def test_no_rows_or_no_features_are_refused(name: str) -> None:
    for info in (DataInfo(0, 4), DataInfo(4, 0)):
        with pytest.raises(ValueError, match="at least one row of at least one feature"):
            build(name).start(info, 0)
