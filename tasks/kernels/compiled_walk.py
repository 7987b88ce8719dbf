"""The numba loop of a walk over cuts; `walk` calls it and holds its reference."""

from __future__ import annotations

from ._numba import jit


@jit
def walk(order, starts, neighbors, gains, bits, costs):  # type: ignore[no-untyped-def]
    """Turn one bit after the other and write what has been added to the cut."""
    total = 0.0
    costs[0] = total
    for step in range(len(order)):
        row = order[step]
        bit, change = bits[row], 0.0
        for place in range(starts[row], starts[row + 1]):
            gain = gains[place]
            change += gain if bits[neighbors[place]] == bit else -gain
        bits[row] = 1 - bit
        total += change
        costs[step + 1] = total
