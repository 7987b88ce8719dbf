"""Pictures inside a report: curves and histograms as SVG, rows of images as PNG."""

from __future__ import annotations

import base64
import io
import math
import re
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..storage.datasets import Dataset

# matplotlib draws in these colours; in the page they become the theme's
INK, LINE, FAINT = "#010203", "#040506", "#070809"
_THEME = {INK: "var(--ink)", LINE: "var(--accent)", FAINT: "var(--line)"}


@dataclass(frozen=True)
class Curve:
    """A scalar of every round: ``label`` names the run, ``name`` the scalar."""

    label: str
    name: str
    rounds: tuple[int, ...]
    values: tuple[float, ...]


def curve_svg(curve: Curve) -> str | None:
    """Return a curve as an ``<svg>`` element in the page's colours, or None without matplotlib."""

    def draw(axes: Any) -> None:
        from matplotlib.ticker import MaxNLocator

        axes.plot(curve.rounds, curve.values, color=LINE, linewidth=1.8, marker="o", markersize=3)
        axes.set_xlabel("round")
        axes.set_ylabel(curve.name)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))

    return drawn(draw, (4.6, 2.7), f"{curve.label} {curve.name}")


def histogram_svg(near: np.ndarray, far: np.ndarray, salt: str) -> str | None:
    """Return two histograms over Hamming distances, each as shares of its pairs; None without matplotlib."""

    def draw(axes: Any) -> None:
        # two codes with the same number of ones differ in an even number of bits
        step = 1 if near[1::2].any() or far[1::2].any() else 2
        places = np.arange(len(near))[::step]
        for counts, label, colour, dash in (
            (near, "of the 10 nearest", "#d55e00", "-"),
            (far, "of the others", "#0072b2", "--"),
        ):
            shares = 100 * counts[::step] / max(counts.sum(), 1)
            axes.step(places, shares, where="mid", color=colour, linewidth=1.6, linestyle=dash, label=label)
            axes.fill_between(places, shares, step="mid", color=colour, alpha=0.2, linewidth=0)
        used = np.flatnonzero(near + far)
        if len(used):
            axes.set_xlim(used[0] - 1, used[-1] + 1)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("Hamming distance")
        axes.set_ylabel("% of pairs")
        axes.legend(frameon=False, fontsize=9)

    return drawn(draw, (4.6, 2.7), f"histogram {salt}")


def drawn(draw: Callable[[Any], None], size: tuple[float, float], salt: str) -> str | None:
    """Return what ``draw(axes)`` draws as an ``<svg>`` element in the page's colours.

    None without matplotlib.  ``salt`` makes the names inside the picture its own.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError:
        return None
    style: dict[str, Any] = {
        "svg.fonttype": "none", "svg.hashsalt": salt, "font.size": 10, "text.color": INK,
        "axes.labelcolor": INK, "axes.edgecolor": FAINT, "xtick.color": INK, "ytick.color": INK,
    }  # fmt: skip
    with rc_context(style):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        draw(axes)
        axes.grid(color=FAINT, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return inline(text.getvalue())


def png_uri(image: np.ndarray) -> str:
    """Return a grey image, uint8 of shape (height, width), as a ``data:`` address."""
    height, width = image.shape
    rows = np.hstack([np.zeros((height, 1), np.uint8), image])  # each row begins with "no filter"
    parts = (
        _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)),
        _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)),
        _chunk(b"IEND", b""),
    )
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(parts)).decode()


def image_shape(dataset: Dataset) -> tuple[int, int] | None:
    """Return (height, width) if the rows are grey images: said by ``image_shape``, or square and of bytes."""
    stated = dataset.attrs.get("image_shape")
    if isinstance(stated, list) and len(stated) == 2 and all(type(side) is int for side in stated):
        height, width = stated
        return (height, width) if height > 0 and height * width == dataset.n_features else None
    side = math.isqrt(dataset.n_features)
    return (side, side) if dataset.dtype == "uint8" and side >= 8 and side**2 == dataset.n_features else None


def row_image(dataset: Dataset, row: int, shape: tuple[int, int]) -> str:
    """Return one row as a ``data:`` address, its values stretched to 0…255 unless they are bytes."""
    vector = dataset.rows(row, row + 1)[0]
    if vector.dtype != np.uint8:
        low, high = float(vector.min()), float(vector.max())
        vector = np.round((vector.astype(np.float64) - low) * (255 / ((high - low) or 1))).astype(np.uint8)
    return png_uri(vector.reshape(shape))


def _chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)


def inline(svg: str) -> str:
    """Keep the drawing alone: the page decides size, font and colours, and no name is used twice in it."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style\b.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(
        r'<svg\b[^>]*?viewBox="([^"]+)"[^>]*>', r'<svg viewBox="\1" aria-hidden="true">', svg, count=1
    )
    svg = re.sub(r"font-family: [^;]*", "font-family: inherit", svg)
    used = set(re.findall(r"#([\w.-]+)", svg))
    svg = re.sub(r' id="([^"]*)"', lambda match: match[0] if match[1] in used else "", svg)
    for colour, variable in _THEME.items():
        svg = svg.replace(colour, variable)
    return svg
