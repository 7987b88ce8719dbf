"""Lines that compare methods in one picture, told apart by colour, marker and dash, with the page's ink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .report_pictures import drawn

if TYPE_CHECKING:
    from collections.abc import Sequence

# eight colours that people with any colour vision tell apart (Okabe and Ito), on light and dark pages
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a8a8a", "#b8860b")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_DASHES = ("-", "--", "-.", ":")


@dataclass(frozen=True)
class Line:
    """Points of one method, with a spread up and down."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float]


def lines_svg(lines: Sequence[Line], x_label: str, y_label: str, *, logarithmic: bool) -> str | None:
    """Return the picture as an ``<svg>`` element, or None without matplotlib."""

    def draw(axes: Any) -> None:
        from matplotlib.ticker import NullFormatter, StrMethodFormatter

        for number, line in enumerate(lines):
            axes.errorbar(
                line.x,
                line.y,
                yerr=line.spread if any(line.spread) else None,
                label=line.label,
                color=_COLOURS[number % len(_COLOURS)],
                marker=_MARKERS[number % len(_MARKERS)],
                linestyle=_DASHES[number // len(_COLOURS) % len(_DASHES)],
                linewidth=1.6,
                markersize=4,
                capsize=2,
            )
        if logarithmic and all(value > 0 for line in lines for value in line.x):
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        if lines:
            axes.legend(frameon=False, fontsize=9)

    return drawn(draw, (5.2, 3.6), f"{x_label} {y_label}")
