"""Tables and pictures of near-isometric hashing from the cells that are there.

Every table stands in `docs/isometry.md` between two marks with its name and is replaced by what is there now.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from nibh_cells import METHODS
from nibh_theory import sigmoid_gap, sigmoid_gap_bound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nibh_kept import Cell

Done = dict["Cell", dict[str, Any]]

DOCS = Path(__file__).resolve().parent.parent / "docs"
DATA = {"mnist": "MNIST", "random": "Random", "squares": "squares", "embeddings": "embeddings"}
OURS = {"paper": "tab:red", "isometric": "tab:orange", "calibrated": "tab:purple", "cg": "black"}
MEASURES = {
    "delta": "δ", "scale_999": "99.9 %", "calibrated_999": "99.9 %, calibrated", "map@10": "MAP@10",
    "map@50": "MAP@50", "map@500": "MAP@500", "tau@500": "τ@500",
}  # fmt: skip


def write(done: Done) -> None:
    """Replace the page's tables, and draw; a table of which the page has more entries is left alone."""
    page = DOCS / "isometry.md"
    text = page.read_text()
    for name, table in TABLES.items():
        lines = [*table({cell: v for cell, v in done.items() if cell.table == name.partition(":")[0]}), ""]
        mark = re.compile(f"(?<=<!-- {name} -->\n).*?(?=<!-- end -->)", re.S)
        there, new = mark.search(text), "\n".join(lines)
        if there and _entries(new) >= _entries(there[0]):
            text = text[: there.start()] + new + text[there.end() :]
            if name == "lengths:delta":
                _draw_lengths(DOCS / "isometry_lengths.png", done)
    page.write_text(text)


def _entries(table: str) -> int:
    return sum(bool(entry.strip()) for line in table.splitlines() for entry in line.split("|"))


def _baselines(done: Done) -> Iterable[str]:
    yield _line("", *MEASURES.values())
    yield _rule(len(MEASURES))
    for row, (name, *_) in METHODS.items():
        found = _found(done, row=row)
        if found:
            yield _line(_bold(row, name), *(_spread(found, key) for key in MEASURES))
        if row == "shd" and found:
            keys = (f"spherical {key}" if key[:3] in ("map", "tau") else "" for key in MEASURES)
            yield _line("SHD, its distance", *(_spread(found, key) for key in keys))


def _calibrated(done: Done) -> Iterable[str]:
    keys = ("map@10", "map@100", "map@500", "tau@500", "calibrated_999", "scale_999", "delta")
    names = ("MAP@10", "MAP@100", "MAP@500", "τ@500", "99.9 %, calibrated", "99.9 %", "δ")
    yield _line("data, bits", "", *names)
    yield _rule(len(names) + 1)
    titles = {"itq": "ITQ", "calibrated": "calibrated", "isometric": "isometric", "paper": "paper"}
    for data, bits in dict.fromkeys((cell.data, cell.bits) for cell in done):
        case = f"{DATA[data]}, {bits}"
        for row, title in titles.items():
            found = _found(done, row=row, data=data, bits=bits)
            if found:
                yield _line(case if row == "itq" else "", title, *(_spread(found, key) for key in keys))
        theirs = _by_seed(done, row="itq", data=data, bits=bits)
        for row in ("calibrated", "isometric"):
            mine = _by_seed(done, row=row, data=data, bits=bits)
            both = sorted(theirs.keys() & mine.keys())
            if both:
                gains = [[mine[s][key] - theirs[s][key] for s in both] for key in keys]
                entries = [f"{_signed(np.mean(g))} ({' '.join(_signed(x) for x in g)})" for g in gains]
                yield _line("", f"{row} − ITQ", *entries)


def _lengths(key: str, data: str) -> Callable[[Done], Iterable[str]]:
    def table(done: Done) -> Iterable[str]:
        lengths = sorted({cell.bits for cell in done})
        yield _line("", *map(str, lengths))
        yield _rule(len(lengths))
        for row, (name, *_) in METHODS.items():
            found = [_found(done, row=row, data=data, bits=bits) for bits in lengths]
            if any(found):
                yield _line(_bold(row, name), *(_mean(each, key) for each in found))

    return table


def _sizes(done: Done) -> Iterable[str]:
    sizes = sorted({cell.size for cell in done})
    yield _line("", *(f"{size:,}" for size in sizes))
    yield _rule(len(sizes))
    for row, (name, *_) in METHODS.items():
        found = [_found(done, row=row, size=size) for size in sizes]
        if any(found):
            yield _line(_bold(row, name), *(_spread(each, "map@500") for each in found))


def _gaps(done: Done) -> Iterable[str]:
    yield _line(
        "", "k", *(f"{n}. fifth" for n in range(1, 6)), "rank correlation", "largest Δ_k", "δ", "Δ_k > 2 δ"
    )
    yield _rule(10)
    for row in ("itq", "calibrated", "paper"):
        found = _found(done, row=row, data="mnist")
        for k in ("10", "50", "500") if found else ():
            each = [values[k] for values in found]
            groups = [
                f"{_plain(np.mean([e['map'][n] for e in each]))} ({np.mean([e['gap'][n] for e in each]):.1e})"
                for n in range(5)
            ]
            yield _line(
                METHODS[row][0], k, *groups, _signed(np.mean([e["rank_correlation"] for e in each]), 2),
                _plain(max(e["largest_gap"] for e in each)), _mean(found, "delta"),
                _percent(e["guaranteed"] for e in each),
            )  # fmt: skip


def _clusters(done: Done) -> Iterable[str]:
    lengths = sorted({cell.bits for cell in done if cell.data == "clusters"})
    yield _line("", *(f"{bits} bits" for bits in lengths))
    yield _rule(len(lengths))
    for row in ("itq", "calibrated", "paper"):
        entries = []
        for bits in lengths:
            found = _found(done, row=row, data="clusters", bits=bits)
            each = [values["10"] for values in found]
            sure, kept = _percent(e["guaranteed"] for e in each), _percent(e["kept"] for e in each)
            entries.append(f"{sure}, {kept}, {_mean(found, 'delta')}" if found else "")
        if any(entries):
            yield _line(METHODS[row][0], *entries)


def _slopes(done: Done) -> Iterable[str]:
    yield _line("slope", "gap of a normal score", "bound", "gap measured", "δ of sigmoids", "δ of signs")
    yield _rule(5)
    for slope in sorted({int(cell.row.removeprefix("slope")) for cell in done}):
        found = _found(done, row=f"slope{slope}")
        theory = [_plain(value(slope)) for value in (sigmoid_gap, sigmoid_gap_bound)]
        measured = (_spread(found, key) for key in ("gap", "soft_delta", "delta"))
        yield _line(str(slope), *theory, *measured)


TABLES: dict[str, Callable[[Done], Iterable[str]]] = {
    "baselines": _baselines,
    "calibrated": _calibrated,
    "lengths:delta": _lengths("delta", "mnist"),
    "lengths:map": _lengths("map", "mnist"),
    "sizes": _sizes,
    "among_all": _sizes,
    "gaps": _gaps,
    "gaps:clusters": _clusters,
    "slopes": _slopes,
}


def _draw_lengths(path: Path, done: Done) -> None:
    """Draw δ, δ of others, MAP and τ against bits, a row of panels for each data set."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from PIL import Image

    done = {cell: values for cell, values in done.items() if cell.table == "lengths"}
    data = [name for name in DATA if any(cell.data == name for cell in done)]
    panels = {"delta": "δ, training points", "delta_test": "δ, others", "map": "MAP", "tau": "τ"}
    figure, axes = plt.subplots(
        len(data), 4, figsize=(15, 3.6 * len(data)), squeeze=False, layout="constrained"
    )
    others = [row for row in METHODS if row not in OURS]
    colours = OURS | dict(zip(others, (*plt.get_cmap("tab20").colors[1::2], "tab:blue"), strict=True))
    for line, source in zip(axes, data, strict=True):
        for axis, (key, title) in zip(line, panels.items(), strict=True):
            for row, (name, *_) in METHODS.items():
                lengths = sorted({c.bits for c in done if (c.data, c.row) == (source, row)})
                found = [_found(done, row=row, data=source, bits=bits) for bits in lengths]
                means = [np.mean([values[key] for values in each]) for each in found]
                mine = row in OURS
                axis.plot(
                    lengths, means, color=colours[row], label=name, lw=2.2 if mine else 1.1,
                    ls="-" if mine or row == "itq" else "--", marker="o" if mine else None, ms=3,
                )  # fmt: skip
            axis.set_title(f"{DATA[source]}: {title}", fontsize=10)
            axis.set_xlabel("bits")
            axis.grid(alpha=0.3)
    lines = axes[0][0].get_legend_handles_labels()
    figure.legend(*lines, loc="outside lower center", ncols=8, fontsize=9, frameon=False)
    figure.savefig(path, dpi=70)
    plt.close(figure)
    with Image.open(path) as picture:
        few = picture.convert("RGB").quantize(64)
    few.save(path, optimize=True)


def _found(done: Done, **which: Any) -> list[dict[str, Any]]:
    """Return the numbers of all cells of which these are the attributes."""
    return list(_by_seed(done, **which).values())


def _by_seed(done: Done, **which: Any) -> dict[int, dict[str, Any]]:
    return {
        cell.seed: values
        for cell, values in done.items()
        if all(getattr(cell, name) == value for name, value in which.items())
    }


def _spread(found: list[dict[str, Any]], key: str) -> str:
    """Return mean and standard deviation over seeds; of one seed no deviation, nothing of none."""
    values = [each[key] for each in found if key in each]
    if not values:
        return ""
    deviation = f" ± {_plain(np.std(values, ddof=1))}" if len(values) > 1 else ""
    return f"{_plain(np.mean(values))}{deviation}"


def _mean(found: list[dict[str, Any]], key: str) -> str:
    values = [each[key] for each in found if key in each]
    return _plain(np.mean(values)) if values else ""


def _percent(shares: Iterable[float]) -> str:
    values = list(shares)
    return f"{100 * np.mean(values):.0f} %" if values else ""


def _plain(value: float) -> str:
    return f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.3f}"


def _signed(value: float, digits: int = 4) -> str:
    sign = "+" if value >= 0 else "−"
    return sign + f"{abs(value):.{digits}f}".removeprefix("0")


def _bold(row: str, name: str) -> str:
    return f"**{name}**" if row in OURS else name


def _line(*entries: str) -> str:
    return "| " + " | ".join(entries) + " |"


def _rule(columns: int) -> str:
    return "|---" * (columns + 1) + "|"
