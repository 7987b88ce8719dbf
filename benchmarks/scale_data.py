"""Millions of rows of 128 float16 numbers, straight to Zarr: deformed digits, repeated with noise.

    python benchmarks/scale_data.py [--rows 4000000] [--dest benchmarks/data/scale.zarr]

Rows are those of `make_deformed_digits.py`, 200,000 of them, each repeated with Gaussian noise of its own (a
tenth of the smallest component's spread).  Random numbers are addressed by block, so a row does not depend
on how many there are.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from functools import cache
from pathlib import Path

import bitfleet as bf
import numpy as np
from bitfleet.tasks.random import stream
from make_deformed_digits import FOLDER, WIDTH, Digits, components

N_ROWS, BLOCK = 4_000_000, 65_536
_DISTINCT_BLOCKS, _NOISE = 10, 0.1


@cache
def distinct() -> np.ndarray:
    """Return the rows that are repeated, float32 of shape (200000, 128)."""
    digits = Digits.load(None)
    images = [digits.block(index)[0] for index in range(_DISTINCT_BLOCKS)]
    mean, matrix = components(images[0])
    return np.concatenate([(some - mean) @ matrix for some in images])


@cache
def _spread() -> np.float32:
    return np.float32(distinct().std(axis=0).min())


def block(index: int, rows: int = BLOCK) -> np.ndarray:
    """Return the first rows of a block, float16 of shape (rows, 128)."""
    base = distinct()
    rng = stream(0, "scale.rows", block=index)
    chosen = rng.integers(0, len(base), BLOCK)[:rows]
    noise = rng.standard_normal((rows, WIDTH), np.float32)
    return (base[chosen] + np.float32(_NOISE) * _spread() * noise).astype(np.float16)


def make(path: Path, n_rows: int = N_ROWS) -> None:
    """Write the data set; an older one there is replaced."""
    shutil.rmtree(path, ignore_errors=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    with bf.DatasetWriter(path, n_features=WIDTH, dtype="float16") as writer:
        for first in range(0, n_rows, BLOCK):
            writer.append(block(first // BLOCK, min(BLOCK, n_rows - first)))
            print(f"\r{min(first + BLOCK, n_rows):,} rows", end="", file=sys.stderr, flush=True)
    print(f"\n{path}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=N_ROWS)
    parser.add_argument("--dest", type=Path, default=FOLDER / "scale.zarr")
    options = parser.parse_args()
    make(options.dest, options.rows)


if __name__ == "__main__":
    main()
