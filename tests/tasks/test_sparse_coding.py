"""Sparse coding: its kernel, its codes beside the best ones, and what training solves for."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from bitfleet.tasks.kernels import coding
from bitfleet.tasks.kernels.pack import list_active, unpack_bits
from bitfleet.tasks.methods.sparse_coding import AtomSums, SparseCoding
from bitfleet.tasks.protocols import Block, DataInfo, LeafPlan, RoundState
from bitfleet.tasks.sparse_coder import SparseCoder

RNG = np.random.default_rng(4)


def atoms_of(n_bits: int, width: int, length: float) -> np.ndarray:
    drawn = RNG.standard_normal((n_bits, width))
    return length * RNG.uniform(0.5, 1, (n_bits, 1)) * drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def test_kernel_agrees_with_reference() -> None:
    atoms = atoms_of(150, 12, 0.4)
    atoms[70] = atoms[20]  # equal scores
    gram = np.zeros((150, coding.padded_width(150)), np.int32)
    gram[:, :150] = np.rint(coding.SCALE * atoms @ atoms.T)
    rows = RNG.standard_normal((80, 12))
    scores = np.zeros((80, gram.shape[1]), np.int32)
    products, factors, errors = rows @ atoms.T, 1 / np.linalg.norm(rows, axis=1), np.full(80, 1e-4)
    other = scores.copy()
    unsure = coding.quantise(products, factors, errors, scores)
    np.testing.assert_array_equal(unsure, coding.quantise_reference(products, factors, errors, other))
    np.testing.assert_array_equal(scores, other)
    scores[:, :150] -= gram.diagonal() >> 1
    for n_exchanges in (0, 1, 3):
        fast, slow = np.zeros((80, 19), np.uint8), np.zeros((80, 19), np.uint8)
        coding.code_rows(scores, gram, 7, n_exchanges, fast)
        coding.code_rows_reference(scores, gram, 7, n_exchanges, slow)
        np.testing.assert_array_equal(fast, slow)


def test_codes_approach_the_best_of_all_sets() -> None:
    atoms = atoms_of(12, 6, 0.6)
    rows = RNG.standard_normal((50, 6))
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    sets = [list(each) for each in combinations(range(12), 3)]
    best = np.min([((unit - atoms[each].sum(axis=0)) ** 2).sum(axis=1) for each in sets], axis=0)
    errors = []
    for n_exchanges in (0, 1, 8):
        bits = unpack_bits(SparseCoder(np.zeros(6), None, atoms, 3, n_exchanges).encode(rows), 12)
        assert (bits.sum(axis=1) == 3).all()
        errors.append(((unit - bits @ atoms) ** 2).sum(axis=1))
        assert (errors[-1] >= best - 1e-9).all()
    assert (errors[1] <= errors[0] + 1e-5).all()
    assert errors[1].mean() < errors[0].mean()
    assert (errors[2] < best + 1e-5).mean() > 0.8


def test_one_active_atom_is_the_nearest() -> None:
    atoms, rows = atoms_of(40, 5, 1.0), RNG.standard_normal((60, 5))
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    nearest = ((unit[:, None] - atoms) ** 2).sum(axis=2).argmin(axis=1)
    found = SparseCoder(np.zeros(5), None, atoms, 1, 1).active(rows)[:, 0]
    np.testing.assert_array_equal(found, nearest)


def test_a_code_is_a_function_of_its_row() -> None:
    X = RNG.standard_normal((600, 9)).astype(np.float32)
    X[3], X[4], X[5] = 0.25, X[6] * 2, X[6] * 2**-120
    components = np.linalg.qr(RNG.standard_normal((9, 6)))[0]
    encoder = SparseCoder(np.full(9, 0.25), components, atoms_of(70, 6, 0.3), 5, 1)
    codes = encoder.encode(X)
    for step in (1, 7):
        parts = [encoder.encode(X[at : at + step]) for at in range(0, 35, step)]
        np.testing.assert_array_equal(np.concatenate(parts), codes[:35])
    assert list_active(codes[3:4], 5).tolist() == [[0, 1, 2, 3, 4]]  # the mean has no direction
    builder, parts = encoder.__reduce__()
    np.testing.assert_array_equal(builder(*parts).encode(X), codes)  # type: ignore[operator]


def train(method: SparseCoding, X: np.ndarray) -> RoundState:
    info = DataInfo(len(X), X.shape[1], "float64")
    state, plan = method.start(info, 5), LeafPlan(len(X), 97)
    while not method.done(state):
        accumulator: Any = method.accumulator(state)
        total = accumulator.init()
        for address in method.blocks(state, plan):
            rows = np.array(getattr(address, "rows", None) or range(address.start, address.stop))
            leaf = accumulator.update(accumulator.init(), Block(rows, X[rows]))
            total = accumulator.merge(total, leaf)
        state = method.advance(state, accumulator.finalize(total))
    return state


def test_training_solves_for_all_atoms_together() -> None:
    X = RNG.standard_normal((400, 7))
    X[9] = 0
    method = SparseCoding(n_bits=30, n_active=4, n_iter=1, center=False)
    begun, state = train(SparseCoding(n_bits=30, n_active=4, n_iter=1, center=False), X), train(method, X)
    assert begun.scalars == state.scalars
    first = method.start(DataInfo(400, 7, "float64"), 5)
    rows = np.array(method.blocks(first, LeafPlan(400, 97))[0].rows)  # type: ignore[union-attr]
    unit = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-300)
    atoms = first.arrays["weights"].copy()
    there = np.linalg.norm(X[rows], axis=1) > 0
    atoms[there] = 0.3 * unit[rows][there]
    kept = np.delete(np.arange(400), 9)
    H = unpack_bits(SparseCoder(np.zeros(7), None, atoms, 4, 1).encode(X[kept]), 30).astype(float)
    error = ((unit[kept] - H @ atoms) ** 2).sum(axis=1).mean()
    held = 0.02 * np.trace(H.T @ H) / 30
    solved = np.linalg.solve(H.T @ H + held * np.eye(30), H.T @ unit[kept] + held * atoms)
    assert np.linalg.norm(solved, axis=1).max() < 1
    np.testing.assert_allclose(state.arrays["weights"], solved, atol=1e-10)
    assert state.scalars["objective"] == pytest.approx(error)
    assert state.scalars["scale"] == pytest.approx(np.sqrt((X[kept] ** 2).sum(axis=1).mean()))


def test_error_falls_and_atoms_are_found_again() -> None:
    planted = atoms_of(32, 24, 0.5)
    H = np.zeros((1500, 32))
    np.put_along_axis(H, RNG.permuted(np.tile(np.arange(32), (1500, 1)), axis=1)[:, :4], 1, axis=1)
    X = H @ planted
    errors = [
        float(train(SparseCoding(n_bits=32, n_active=4, n_iter=n, center=False), X).scalars["objective"])  # type: ignore[arg-type]
        for n in (1, 3, 10)
    ]
    assert errors[0] > 1.2 * errors[1] > 1.2 * errors[2]


def test_sums_merge_in_any_tree() -> None:
    X = RNG.standard_normal((64, 6))
    method = SparseCoding(n_bits=20, n_active=3, n_iter=1, center=False)
    state = train(method, X)
    encoder = method.encoder(state)
    sums = AtomSums(encoder, method_front(state))
    whole = sums.finalize(sums.update(sums.init(), Block(np.arange(64), X)))
    parts = [sums.update(sums.init(), Block(np.arange(a, a + 16), X[a : a + 16])) for a in range(0, 64, 16)]
    merged = sums.finalize(sums.merge(sums.merge(parts[0], parts[1]), sums.merge(parts[2], parts[3])))
    for name, value in whole.items():
        np.testing.assert_allclose(merged[name], value, rtol=1e-12)


def method_front(state: RoundState) -> Any:
    from bitfleet.tasks.methods.base import front_of

    return front_of(state)


def test_wrong_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="n_active of at most 1000, got 1001"):
        SparseCoding(n_bits=4096, n_active=1001)
    with pytest.raises(ValueError, match="n_exchanges to be an integer >= 0, got -1"):
        SparseCoding(n_exchanges=-1)
    with pytest.raises(ValueError, match="atoms of length one or zero, got longer ones"):
        SparseCoder(np.zeros(3), None, np.eye(3) * 2, 1, 0)
