"""Gather the cells of the embeddings' table: Markdown, differences split by split, and a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from embedding_cells import PEERS, ROWS, Cell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Done = dict[Cell, dict[str, Any]]

NAMES = {
    "sign": "Sign",
    "lsh": "LSH",
    "itq": "ITQ",
    "knnh": "KNNH",
    "fruit_fly": "FruitFly",
    "biohash": "BioHash",
    "spherical_hash": "SphericalHash",
    "posh": "POSH",
    "bosl": "BOSL",
    "faiss_pq": "Faiss PQ",
    "faiss_opq": "Faiss OPQ",
    "faiss_rabitq": "Faiss RaBitQ",
}
WAYS = ("symmetric", "asymmetric")

#: (what, its size and way, the baseline, its size and way, points that are aimed at)
AIMS = (
    ("itq", 48, "symmetric", "sign", 48, "symmetric", 1.0),
    ("itq", 48, "asymmetric", "sign", 48, "symmetric", 11.0),
    ("itq", 32, "asymmetric", "sign", 48, "symmetric", 5.0),
)


def compare(done: Done) -> Iterator[dict[str, Any]]:
    """Yield what ITQ gains over signs in each split, recall10@10, in points, and what was aimed at."""
    for row, size, way, other, other_size, other_way, aim in AIMS:
        ours = _by_split(done, row, size, f"{way}@10")
        theirs = _by_split(done, other, other_size, f"{other_way}@10")
        both = sorted(ours.keys() & theirs.keys())
        if both:
            gains = [round(ours[s] - theirs[s], 2) for s in both]
            yield {
                "compared": f"{row} {size} B {way} - {other} {other_size} B {other_way}",
                "splits": both,
                "points": gains,
                "aim": aim,
                "reached": min(gains) >= aim,
            }


def write_markdown(path: Path, done: Done) -> str:
    """Write a table for each way to search and cutoff: means over the splits."""
    sizes = sorted({cell.n_bytes for cell in done})
    parts = []
    for way in WAYS:
        for n in (10, 100):
            lines = [
                f"### {way}, recall10@{n} (rescored)",
                "",
                "| | " + " | ".join(f"{size} B" for size in sizes) + " | splits |",
                "|---" * (len(sizes) + 2) + "|",
            ]
            for row in ROWS:
                entries, splits = [], set()
                for size in sizes:
                    plain = _by_split(done, row, size, f"{way}@{n}")
                    best = _by_split(done, row, size, f"{way} rescored@{n}")
                    splits |= {len(plain)} - {0}
                    entries.append(f"{_mean(plain):.1f} ({_mean(best):.1f})" if plain else "-")
                if splits:
                    count = "-".join(map(str, sorted(splits)))
                    lines.append(f"| {NAMES[row]} | " + " | ".join(entries) + f" | {count} |")
            parts.append("\n".join([*lines, ""]))
    text = "\n".join(parts)
    path.write_text(text)
    return text


def write_picture(path: Path, done: Done) -> None:
    """Draw recall10@10 against bytes, both ways to search side by side."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    sizes = sorted({cell.n_bytes for cell in done})
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.4), sharey=True, layout="constrained")
    colours = dict(zip(ROWS, plt.get_cmap("tab20").colors[::2] + plt.get_cmap("Dark2").colors, strict=False))
    for axis, way in zip(axes, WAYS, strict=True):
        for row in ROWS:
            points = [(size, _by_split(done, row, size, f"{way}@10")) for size in sizes]
            points = [(size, _mean(found)) for size, found in points if found]
            if points:
                axis.plot(
                    *zip(*points, strict=True), marker="o", ms=4, label=NAMES[row], color=colours[row],
                    ls="--" if row in PEERS else "-",
                )  # fmt: skip
        axis.set_xscale("log", base=2)
        axis.set_xticks(sizes, [str(size) for size in sizes])
        axis.minorticks_off()
        axis.set_xlabel("bytes a vector (float32: 1,536)")
        axis.set_title({"symmetric": "codes against codes", "asymmetric": "real queries against codes"}[way])
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8, frameon=False)
    axes[0].set_ylabel("recall10@10, %")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _by_split(done: Done, row: str, n_bytes: int, key: str) -> dict[int, float]:
    return {
        cell.split: values[key]
        for cell, values in done.items()
        if (cell.row, cell.n_bytes) == (row, n_bytes) and key in values
    }


def _mean(found: dict[int, float]) -> float:
    return float(np.mean(list(found.values()))) if found else float("nan")
