"""The numba loops of secants and of the ℓ∞ prox; `secants` and `linf` call them and hold their references.

In one file of their own, like the loops of `compiled`, so that numba notices every change.
"""

from __future__ import annotations

from ._numba import jit


@jit
def squares(codes, first, second, out):  # type: ignore[no-untyped-def]
    """out[p] = ‖codes[first[p]] - codes[second[p]]‖², columns in order."""
    for p in range(first.shape[0]):
        i, j = first[p], second[p]
        total = 0.0
        for m in range(codes.shape[1]):
            difference = codes[i, m] - codes[j, m]
            total += difference * difference
        out[p] = total


@jit
def pull(codes, first, second, forces, out):  # type: ignore[no-untyped-def]
    """out += the gradient of Σ forces[p] ‖codes[first[p]] - codes[second[p]]‖², pairs in order."""
    for p in range(first.shape[0]):
        force = 2.0 * forces[p]
        if force != 0.0:
            i, j = first[p], second[p]
            for m in range(codes.shape[1]):
                part = force * (codes[i, m] - codes[j, m])
                out[i, m] += part
                out[j, m] -= part


@jit
def threshold(sizes, radius, kept):  # type: ignore[no-untyped-def]
    """Return t with Σ max(sizes - t, 0) = radius, 0 if the sum is not larger; ``kept`` is scratch."""
    total = 0.0
    largest = 0.0
    for i in range(sizes.shape[0]):
        total += sizes[i]
        largest = max(largest, sizes[i])
    if total <= radius:
        return 0.0
    t = max(largest - radius, (total - radius) / sizes.shape[0], 0.0)  # never above the answer
    count = 0
    total = 0.0
    for i in range(sizes.shape[0]):
        if sizes[i] > t:
            kept[count] = sizes[i]
            total += sizes[i]
            count += 1
    while count > 0:
        higher = (total - radius) / count
        if higher <= t:
            return t
        t = higher
        left = 0
        total = 0.0
        for k in range(count):
            if kept[k] > t:
                kept[left] = kept[k]
                total += kept[left]
                left += 1
        if left == count:
            return t
        count = left
    return t


@jit
def tabulate(hamming, distances, count, total):  # type: ignore[no-untyped-def]
    """count[k] += 1, total[k] += distances[i, j] for each pair i < j with hamming[i, j] rounded to k."""
    for i in range(hamming.shape[0]):
        for j in range(i + 1, hamming.shape[1]):
            k = int(hamming[i, j] + 0.5)
            count[k] += 1.0
            total[k] += distances[i, j]


@jit
def calibrated_forces(hamming, distances, table, steepness, half_power, out):  # type: ignore[no-untyped-def]
    """out[i, j] = (g(h) - c)^(2 half_power + 1) g'(h), 0 from a point to itself; return Σ |out|."""
    mass = 0.0
    last = table.shape[0] - 2
    for i in range(hamming.shape[0]):
        row = 0.0
        for j in range(hamming.shape[1]):
            h = hamming[i, j]
            k = min(int(h), last)
            error = table[k] + (table[k + 1] - table[k]) * (h - k) - distances[i, j]
            square = error * error
            for _ in range(half_power):
                error *= square
            force = error * steepness[k] if i != j else 0.0 * error
            out[i, j] = force
            row += abs(force)
        mass += row
    return mass
