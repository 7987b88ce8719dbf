"""Leaf size: how many rows one task adds up.

A pure function of the data's width and length and of the method, never of memory, worker count or the
input's chunks, because the leaves and the tree over them decide the bits of every sum.
"""

from __future__ import annotations

import math

from .protocols import LeafPlan

TARGET_BYTES = 32 * 2**20


def base_rows(n_features: int) -> int:
    """Return the power of two of rows nearest to 32 MiB of float32; also the row chunk of stored vectors."""
    exact = TARGET_BYTES / (4 * max(n_features, 1))
    return max(1, 2 ** round(math.log2(exact)))


def leaf_rows(n_rows: int, n_features: int, min_leaves: int = 1) -> int:
    """Return the rows of a leaf: `base_rows`, halved until there are at least ``min_leaves`` leaves."""
    rows = base_rows(n_features)
    while rows > 1 and -(-n_rows // rows) < min_leaves:
        rows //= 2
    return rows


def plan_leaves(
    n_rows: int, n_features: int, *, min_leaves: int = 1, block_rows: int | None = None, fan_in: int = 8
) -> LeafPlan:
    """Cut ``n_rows`` into leaves; ``block_rows`` overrides the rule, and a run records it."""
    rows = leaf_rows(n_rows, n_features, min_leaves) if block_rows is None else block_rows
    return LeafPlan(n_rows, rows, fan_in)
