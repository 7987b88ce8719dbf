"""Gather the cells of the table of bytes into `docs/bytes.md` and `docs/bytes.png`."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from bytes_cells import COSINE, VALIDATION, all_saved, keep_measured

DOCS = Path(__file__).resolve().parent.parent / "docs"
BEGIN, END = "<!-- tables -->", "<!-- /tables -->"
NAMES = {
    "sparse_coding": "**SparseCoding**",
    "sparse_coding_4096": "SparseCoding of 4,096 atoms",
    "pursuit": "PursuitHash, packed, with a decoder",
    "posh": "POSH, packed, with a decoder",
    "itq": "ITQ, asymmetric",
    "itq symmetric": "ITQ, symmetric",
    "sign": "Sign, asymmetric",
    "lsh": "LSH, asymmetric",
    "pq": "Faiss PQ",
    "opq": "Faiss OPQ",
    "sq4": "Faiss SQ4 after PCA",
    "sq8": "Faiss SQ8 after PCA",
    "rabitq": "Faiss RaBitQ",
    "rq": "Faiss residual quantizer",
    "lsq": "Faiss local search quantizer",
}
TITLES = {
    "sentences": "Sentence embeddings (384 floats, cosine)",
    "glove": "GloVe (100 floats, cosine)",
    "gist": "GIST of CIFAR-10 (512 floats, Euclidean)",
}
KEYS = ("@10", " rescored@10", "@100")
Found = dict[tuple[str, str, int], dict[int, dict[str, Any]]]


def gather() -> Found:
    """Return the cells by data set, row and bytes, then by split; of a peer the better way to score."""
    found: Found = defaultdict(dict)
    for name, values in all_saved().items():
        data, row, n_bytes, split = name.rsplit("-", 3)
        seed = int(split.removeprefix("split"))
        if seed == VALIDATION:
            continue
        ways = [way for way in ("asymmetric", "cosine of decoded") if f"{way}@10" in values]
        best = max(ways, key=lambda way, values=values: values[f"{way}@10"])
        found[data, row, int(n_bytes)][seed] = values | {key: values[f"{best}{key}"] for key in KEYS}
        if "symmetric@10" in values and row == "itq":
            found[data, "itq symmetric", int(n_bytes)][seed] = {k: values[f"symmetric{k}"] for k in KEYS}
    return found


def write_report() -> None:
    """Write the tables between the markers of the page, the picture, and the cells that they are made of."""
    keep_measured()
    found = gather()
    page = DOCS / "bytes.md"
    text = page.read_text()
    start, stop = text.index(BEGIN) + len(BEGIN), text.index(END)
    parts = [recall_table(found, data) for data in COSINE] + [margins(found), time_table(found)]
    page.write_text(text[:start] + "\n\n" + "\n\n".join(parts) + "\n\n" + text[stop:])
    write_picture(found)


def recall_table(found: Found, data: str) -> str:
    """recall10@10 (rescored) / recall10@100, means of the splits there are."""
    sizes = sorted({n for d, _, n in found if d == data})
    lines = [f"{TITLES[data]}:", "", "| | " + " | ".join(f"{n} B" for n in sizes) + " | splits |"]
    lines.append("|---" * (len(sizes) + 2) + "|")
    for row, name in NAMES.items():
        cells = [found.get((data, row, n), {}) for n in sizes]
        if any(cells):
            entries = [_entry(cell) for cell in cells]
            counts = sorted({len(cell) for cell in cells if cell})
            lines.append(f"| {name} | " + " | ".join(entries) + f" | {'-'.join(map(str, counts))} |")
    return "\n".join(lines)


def _entry(cell: dict[int, dict[str, Any]]) -> str:
    if not cell:
        return ""
    mean = {key: np.mean([values[key] for values in cell.values()]) for key in KEYS}
    mark = " †" if any(values.get("former") for values in cell.values()) else ""
    return f"{mean['@10']:.1f} ({mean[' rescored@10']:.1f}) / {mean['@100']:.1f}{mark}"


def margins(found: Found) -> str:
    """What SparseCoding has more than the best of the others, split by split."""
    lines = [
        "SparseCoding against the best other method that was run on the same split, recall10@10 in points, "
        "split by split,",
        "and the standard deviation of SparseCoding over splits:",
        "",
        "| | bytes | best other | points | spread |",
        "|---|---|---|---|---|",
    ]
    for data in COSINE:
        title = TITLES[data].split(" (")[0]
        for n in sorted({n for d, r, n in found if d == data and r == "sparse_coding"}):
            ours = found[data, "sparse_coding", n]
            others = {r: c for (d, r, m), c in found.items() if (d, m) == (data, n) and "sparse" not in r}
            points, names = [], set()
            for split in sorted(ours):
                there = {r: c[split]["@10"] for r, c in others.items() if split in c}
                if there:
                    best = max(there, key=lambda r, there=there: there[r])
                    names.add(NAMES[best])
                    points.append(ours[split]["@10"] - there[best])
            if not points:
                continue
            spread = np.std([cell["@10"] for cell in ours.values()], ddof=min(1, len(ours) - 1))
            spread_told = f"{spread:.1f}" if len(ours) > 1 else "one split"
            told = ", ".join(f"{p:+.1f}" for p in points)
            lines.append(f"| {title} | {n} | {', '.join(sorted(names))} | {told} | {spread_told} |")
    return "\n".join(lines)


def time_table(found: Found) -> str:
    """Return seconds on the first data set, a line for each method and size."""
    lines = [
        "CPU seconds of one thread on the sentence embeddings (training on 20,000, encoding 49,000, asking",
        "1,000 queries at once for 300 neighbours), and by how many MB the process grew in training:",
        "",
        "| | bytes | train | encode | search | MB |",
        "|---|---|---|---|---|---|",
    ]
    for row, name in NAMES.items():
        for (data, r, n), cell in sorted(found.items()):
            if (data, r) != ("sentences", row) or not all("train seconds" in v for v in cell.values()):
                continue
            told = [f"{_median(cell, f'{what} seconds'):.1f}" for what in ("train", "encode", "search")]
            lines.append(f"| {name} | {n} | {' | '.join(told)} | {_median(cell, 'train MB'):.0f} |")
    return "\n".join(lines)


def _median(cell: dict[int, dict[str, Any]], key: str) -> float:
    return float(np.median([values[key] for values in cell.values()]))


def write_picture(found: Found) -> None:
    """Draw recall10@10 against bytes, a panel for each data set."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(COSINE), figsize=(13, 4.4), layout="constrained")
    colours = dict(zip(NAMES, plt.get_cmap("tab20").colors, strict=False))
    for axis, data in zip(axes, COSINE, strict=True):
        for row, name in NAMES.items():
            points = sorted((n, cell) for (d, r, n), cell in found.items() if (d, r) == (data, row))
            if points:
                means = [float(np.mean([v["@10"] for v in cell.values()])) for _, cell in points]
                axis.plot(
                    [n for n, _ in points], means, "--" if name.startswith("Faiss") else "-", marker="o",
                    ms=4, lw=2.6 if row == "sparse_coding" else 1.2, label=name.strip("*"),
                    color=colours[row],
                )  # fmt: skip
        axis.set_xscale("log", base=2)
        sizes = sorted({n for d, _, n in found if d == data})
        axis.set_xticks(sizes, [str(n) for n in sizes])
        axis.minorticks_off()
        axis.set_xlabel("bytes a vector")
        axis.set_title(TITLES[data], fontsize=10)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("recall10@10, %")
    axes[0].legend(fontsize=7, frameon=False)
    figure.savefig(DOCS / "bytes.png", dpi=110)
    plt.close(figure)
