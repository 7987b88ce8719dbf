"""GIST of the MNIST digits, 512 numbers each: 4 scales × 8 orientations (Oliva and Torralba 2001).

    python benchmarks/make_gist.py [--dest benchmarks/data/mnist_gist512.npz]

1. Prefilter: log(1 + grey level), less its low-pass (half amplitude at 4 cycles an image), divided by .2 plus
   the local standard deviation.
2. Gabor filters in the Fourier domain: a Gaussian ring at .3 / 1.85ˢ cycles a pixel for scale s, times a
   Gaussian in angle for each of the orientations.
3. The magnitude of each response, averaged in 4 × 4 blocks of the image.

Images are extended by mirroring, to 64 × 64, so that borders do not ring. One thread; about four minutes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from mnist import GIST_OF_MNIST, load_mnist
from scipy import fft

SCALES, ORIENTATIONS, BLOCKS = 4, 8, 4
SIDE = 64  # of the extended image
TILE = 250  # images at once


def low_pass(cycles: float) -> np.ndarray:
    """Return the transfer function, shape (64, 64), of half amplitude at so many cycles an image."""
    f = fft.fftfreq(SIDE, 1 / SIDE)
    return np.exp(-(f[:, None] ** 2 + f**2) * np.log(2) / cycles**2).astype(np.float32)


def gabor_filters() -> np.ndarray:
    """Return transfer functions, shape (32, 64, 64), one-sided, so that responses are analytic signals."""
    f = fft.fftfreq(SIDE)
    radius = np.hypot(f[:, None], f)
    angle = np.arctan2(f[:, None], f)
    width = 2 * np.pi * 16 * ORIENTATIONS**2 / 32**2
    filters = []
    for scale in range(SCALES):
        ring = np.exp(-3.5 * (radius / (0.3 / 1.85**scale) - 1) ** 2)
        for k in range(ORIENTATIONS):
            away = (angle + np.pi * k / ORIENTATIONS + np.pi) % (2 * np.pi) - np.pi
            filters.append(ring * np.exp(-width * away**2))
    return np.array(filters, np.float32)


def filtered(images: np.ndarray, transfer: np.ndarray) -> np.ndarray:
    return fft.ifft2(fft.fft2(images) * transfer).real


def prefilter(images: np.ndarray) -> np.ndarray:
    """Even out lighting and contrast, images of shape (m, 64, 64) with grey levels 0 … 255."""
    low = low_pass(4.0)
    detail = np.log1p(images)
    detail -= filtered(detail, low)
    contrast = np.sqrt(np.abs(filtered(detail**2, low)))
    return detail / (0.2 + contrast)


def gist(images: np.ndarray, filters: np.ndarray) -> np.ndarray:
    """Return descriptors, float32 of shape (m, 512), of square images of grey levels, shape (m, a, a)."""
    side = images.shape[1]
    before = (SIDE - side) // 2
    extent = (before, SIDE - side - before)
    extended = np.pad(images.astype(np.float32), ((0, 0), extent, extent), mode="symmetric")
    spectrum = fft.fft2(prefilter(extended))
    edges = np.linspace(0, side, BLOCKS + 1).astype(int)[:-1]
    values = []
    for transfer in filters:
        response = np.abs(fft.ifft2(spectrum * transfer))[:, before : before + side, before : before + side]
        sums = np.add.reduceat(np.add.reduceat(response, edges, axis=1), edges, axis=2)
        values.append(sums.reshape(len(images), -1) * (BLOCKS**2 / side**2))
    return np.concatenate(values, axis=1).astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dest", type=Path, default=GIST_OF_MNIST)
    dest = parser.parse_args().dest
    vectors, labels = load_mnist(None)
    images = (255 * vectors).reshape(-1, 28, 28)
    filters = gabor_filters()
    tiles = []
    for first in range(0, len(images), TILE):
        tiles.append(gist(images[first : first + TILE], filters))
        print(f"\r{first + len(tiles[-1])} of {len(images)}", end="", file=sys.stderr)
    dest.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(dest, X=np.concatenate(tiles).astype(np.float16), y=labels)
    print(f"\n{dest}", file=sys.stderr)


if __name__ == "__main__":
    main()
