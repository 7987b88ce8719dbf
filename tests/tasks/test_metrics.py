"""Metrics against loops written from their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from bitfleet.tasks.metrics import (
    average_precision_at,
    gap_at,
    kendall_at,
    overlap_at,
    parse_metrics,
    precision_at,
    recall_at,
    relevance,
)
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy.stats import kendalltau

relevances = arrays(bool, array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=12))


def average_precision_by_hand(hits: list[bool], cutoff: int, n_relevant: int | None) -> float:
    total, seen = 0.0, 0
    for rank, hit in enumerate(hits[:cutoff], start=1):
        if hit:
            seen += 1
            total += seen / rank
    divisor = seen if n_relevant is None else min(cutoff, n_relevant)
    return total / divisor if divisor else 0.0


def test_average_precision_of_a_worked_example() -> None:
    """Relevant at ranks 1, 3 and 6: (1/1 + 2/3 + 3/6) / 3; of 5 relevant in all, / 5."""
    relevant = np.array([[1, 0, 1, 0, 0, 1, 0, 0, 0, 0]], dtype=bool)
    assert average_precision_at(relevant, 10) == pytest.approx([(1 + 2 / 3 + 1 / 2) / 3])
    assert average_precision_at(relevant, 10, np.array([5])) == pytest.approx([(1 + 2 / 3 + 1 / 2) / 5])
    assert average_precision_at(relevant, 2, np.array([5])) == pytest.approx([1 / 2])


@given(relevances, st.integers(1, 20))
def test_average_precision_equals_the_loop(relevant: np.ndarray, cutoff: int) -> None:
    expected = [average_precision_by_hand(row.tolist(), cutoff, None) for row in relevant]
    assert average_precision_at(relevant, cutoff) == pytest.approx(expected)


@given(relevances, st.integers(1, 20), st.integers(0, 5))
def test_average_precision_over_all_relevant_equals_the_loop(
    relevant: np.ndarray, cutoff: int, unseen: int
) -> None:
    n_relevant = relevant.sum(axis=1) + unseen
    expected = [
        average_precision_by_hand(row.tolist(), cutoff, int(count))
        for row, count in zip(relevant, n_relevant, strict=True)
    ]
    assert average_precision_at(relevant, cutoff, n_relevant) == pytest.approx(expected)


def test_precision_counts_only_what_there_is() -> None:
    relevant = np.array([[True, False, True], [False, False, False]])
    assert precision_at(relevant, 2).tolist() == [0.5, 0.0]
    assert precision_at(relevant, 1000) == pytest.approx([2 / 3, 0.0])
    assert precision_at(np.empty((2, 0), dtype=bool), 5).tolist() == [0.0, 0.0]


def test_relevance_never_holds_for_rows_without_label() -> None:
    labels = np.array([[3, -1, 2], [-1, 3, -1]])
    assert relevance(labels, np.array([3, -1])).tolist() == [[True, False, False], [False, False, False]]


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 12))
def test_recall_equals_set_intersection(seed: int, neighbors: int, cutoff: int) -> None:
    rng = np.random.default_rng(seed)
    true_ids = np.stack([rng.permutation(20)[:10] for _ in range(4)])
    retrieved = np.stack([rng.permutation(20)[:10] for _ in range(4)])
    expected = [
        len(set(t[:neighbors].tolist()) & set(r[:cutoff].tolist())) / min(neighbors, 10)
        for t, r in zip(true_ids, retrieved, strict=True)
    ]
    assert recall_at(true_ids, retrieved, neighbors, cutoff).tolist() == expected


def test_names_are_parsed() -> None:
    metrics = parse_metrics("map@1000, precision@5,recall@100,recall1@7,map_min@50,map@1000")
    assert [(m.kind, m.cutoff, m.neighbors) for m in metrics] == [
        ("map", 1000, 0),
        ("precision", 5, 0),
        ("recall", 100, 10),
        ("recall", 7, 1),
        ("map_min", 50, 0),
    ]
    assert [m.needs_labels for m in metrics] == [True, True, False, False, True]
    assert (
        parse_metrics(["recall@100"])[0]
        .definition()
        .startswith("mean over queries of the share of the 10 nearest")
    )


@pytest.mark.parametrize(
    "names", ["map", "map@0", "map@-1", "recall0@5", "ndcg@10", "map@1e3", "", [], [7], "map@05"]
)
def test_bad_names_are_refused(names: object) -> None:
    with pytest.raises(ValueError, match="known are map@N"):
        parse_metrics(names)  # type: ignore[arg-type]


def test_every_bad_name_is_listed() -> None:
    with pytest.raises(ValueError, match=r"'mapp@3', 'recall@x'"):
        parse_metrics(["mapp@3", "map@3", "recall@x"])


def ranked_lists(draw_seed: int) -> tuple[np.ndarray, np.ndarray]:
    """True distances (ascending, with ties) and Hamming distances of 8 queries' 40 neighbours."""
    rng = np.random.default_rng(draw_seed)
    return np.sort(rng.integers(0, 25, (8, 40)) / 7.0, axis=1), rng.integers(0, 9, (8, 40)).astype(np.int32)


@given(st.integers(0, 2**32), st.integers(2, 45))
def test_kendall_equals_scipy(seed: int, k: int) -> None:
    true, hamming = ranked_lists(seed)
    hamming[0], true[1] = 3, 1.0  # constant lists
    found = kendall_at(true, hamming, k)
    for row in range(8):
        expected = kendalltau(true[row, :k], hamming[row, :k], variant="b").statistic
        assert found[row] == pytest.approx(0 if np.isnan(expected) else expected, abs=1e-14)


@given(st.integers(0, 2**32), st.integers(1, 30))
def test_overlap_equals_the_mean_over_many_orders_of_ties(seed: int, k: int) -> None:
    """Against its definition, |L ∩ L_H| / k with ties shuffled; exactly where k ends with a group of ties."""
    rng = np.random.default_rng(seed)
    hamming = rng.integers(0, 6, 25)  # of all rows; the first ones are the true neighbours
    found = overlap_at(hamming[None, :k], np.bincount(hamming, minlength=7)[None], k)[0]
    shares = []
    for _ in range(400):
        retrieved = np.lexsort((rng.random(25), hamming))[:k]
        shares.append(np.isin(np.arange(min(k, 25)), retrieved).sum() / min(k, 25))
    assert found == pytest.approx(np.mean(shares), abs=0.15)
    last = np.sort(hamming)[min(k, 25) - 1]
    if (hamming <= last).sum() == min(k, 25):
        assert found == pytest.approx(shares[0], abs=1e-12)


def test_gap_is_the_difference_of_distances() -> None:
    assert gap_at(np.array([[1.0, 4.0, 9.0]]), 2) == [1.0]
    assert [metric.neighbors for metric in parse_metrics("gap@5,kendall@5,overlap_map@5,map@5")] == [
        6,
        5,
        5,
        0,
    ]
