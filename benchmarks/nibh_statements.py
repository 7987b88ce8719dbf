"""Measured beside the NIBH paper's statements: what gaps between neighbours and slopes of sigmoids do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import bitfleet as bf
import numpy as np
from bitfleet.tasks.metrics import gap_at
from bitfleet.tasks.random import stream
from nibh_cells import METHODS, N_ROWS, few, judge_of, splits
from nibh_data import on_sphere
from nibh_fits import Split, fit, fit_once
from nibh_judge import Judge, bits_of, listed_delta
from nibh_theory import is_guaranteed
from scipy.optimize import linprog
from scipy.spatial.distance import pdist
from scipy.special import expit
from scipy.stats import spearmanr

if TYPE_CHECKING:
    from nibh_kept import Cell

NEIGHBORS = (10, 50, 500)
N_GROUPS = 5
N_CLUSTERS, CLUSTER, SPREAD = 100, 11, 0.03


def gaps(cell: Cell) -> dict[str, Any]:
    """Overlap of the k nearest by fifths of the queries' Δ_k, and for how many queries Δ_k > 2 δ."""
    if cell.data == "clusters":
        training, test = clustered(cell.seed), clustered(cell.seed + 1000)
        judge, neighbors = Judge.among(test, len(test), CLUSTER), (CLUSTER - 1,)
    else:
        training, _, test = splits(cell.data, cell.seed)
        judge, neighbors = judge_of(cell.data, cell.seed, 2), NEIGHBORS
    _, name, params = METHODS[cell.row]
    split = Split(cell.data, cell.seed)
    codes = fit_once(split, name, training, cell.seed, n_bits=cell.bits, **params).codes(test)
    bits = bits_of(codes, cell.bits)
    found = bf.max_distortion(codes, test, n_bits=cell.bits)
    overlaps = judge.per_query(bits, neighbors, ())
    distances, hamming = _to_all(judge, bits)
    values: dict[str, Any] = {"delta": found.delta, "scale": found.scale}
    for k in neighbors:
        gap, overlap = gap_at(judge.distances, k), overlaps[f"map@{k}"]
        fifths = np.array_split(np.argsort(gap, kind="stable"), N_GROUPS)
        values[str(k)] = {
            "gap": [float(gap[group].mean()) for group in fifths],
            "map": [float(overlap[group].mean()) for group in fifths],
            "rank_correlation": float(spearmanr(gap, overlap).statistic) if np.ptp(overlap) else 0.0,
            "largest_gap": float(gap.max()),
            "guaranteed": float(is_guaranteed(distances, hamming, float(found.scale or 0), k).mean()),
            "kept": float((overlap > 1 - 1e-12).mean()),
        }
    return values


def clustered(seed: int) -> np.ndarray:
    """Return 100 clusters of 11 rows around the same centres, new rows for each seed."""
    centres = stream(0, "nibh.centres").standard_normal((N_CLUSTERS, 100))
    noise = stream(seed, "nibh.clustered").standard_normal((N_CLUSTERS, CLUSTER, 100))
    rows = centres[:, None] + SPREAD * noise
    return on_sphere(rows.reshape(-1, 100), np.zeros(100))[0]


def slopes(cell: Cell) -> dict[str, Any]:
    """Of 100 points: how far sigmoids are from bits, and δ of both; the row is "slope" and the slope."""
    slope = float(cell.row.removeprefix("slope"))
    training, _ = few(cell.data, cell.seed)
    found = fit("nibh", training, cell.seed, n_bits=cell.bits, slope=slope)
    arrays, bits = found.state.arrays, found.bits(training)
    rows = training - arrays["mean"]
    if "components" in arrays:
        rows = rows @ arrays["components"]
    scores = rows @ arrays["weights"]
    scores /= np.sqrt(np.square(scores).mean(axis=0))
    soft, distances = expit(slope * scores), pdist(training)
    return {
        "gap": float(np.abs(soft - bits).mean()),
        "soft_delta": _soft_delta(pdist(soft, "sqeuclidean"), distances),
        "delta": listed_delta(bits, distances),
    }


def _soft_delta(soft: np.ndarray, distances: np.ndarray) -> float:
    """Return inf over λ of max |λ v - c|, by a linear program."""
    one = np.ones(len(soft))
    above, below = np.column_stack([soft, -one]), np.column_stack([-soft, -one])
    sides = np.concatenate([distances, -distances])
    return float(linprog([0, 1], np.vstack([above, below]), sides, bounds=[(0, None)] * 2).fun)


def _to_all(judge: Judge, bits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return distances and Hamming distances of each query to all other rows, (q, n - 1)."""
    assert len(judge.rows) <= N_ROWS
    rows, queries = judge.rows.astype(np.float64), judge.queries.astype(np.float64)
    squares = np.einsum("ij,ij->i", queries, queries)[:, None] + np.einsum("ij,ij->i", rows, rows)
    distances = np.sqrt(np.maximum(squares - 2 * queries @ rows.T, 0))
    ones = bits.astype(np.float64)
    asked = ones[judge.own]
    hamming = asked.sum(axis=1)[:, None] + ones.sum(axis=1) - 2 * asked @ ones.T
    others = np.arange(len(rows)) != judge.own[:, None]
    return distances[others].reshape(len(asked), -1), hamming[others].reshape(len(asked), -1)
