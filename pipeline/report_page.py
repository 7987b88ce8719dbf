"""The look of a report: one page of HTML with its style and a small script inside, nothing fetched.

The page's policy lets a browser run that one script, by its digest, and nothing else.

All functions take plain text and escape it; a `Markup` is text that has been escaped already.
"""

from __future__ import annotations

import base64
import hashlib
from html import escape
from typing import TYPE_CHECKING, NewType, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Markup = NewType("Markup", str)
Cell: TypeAlias = "tuple[float, float | None]"  # a metric's value and standard error

_STYLE = """
:root { color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1b1f24; --soft: #59636e; --line: #d8dee4; --accent: #0b63ce;
  --bar: #cfe1f7; --good: #1a7f37; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root {
  --page: #0f1318; --card: #171d24; --ink: #e8edf2; --soft: #9aa6b2; --line: #313a44; --accent: #6cb0ff;
  --bar: #1f3d61; --good: #56d364; --bad: #ff7b72; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
header p { margin: .25rem 0; color: var(--soft); overflow-wrap: anywhere; }
h1 { margin: 0; font-size: 1.75rem; line-height: 1.25; }
h2 { margin: 0 0 .75rem; font-size: 1.2rem; }
h3 { margin: 0 0 .25rem; font-size: 1rem; font-weight: 600; }
section { margin-top: 1.25rem; padding: 1.25rem; background: var(--card); border: 1px solid var(--line);
  border-radius: .6rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: .45rem .75rem; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top; }
tbody tr:last-child > * { border-bottom: 0; }
thead button { font: inherit; color: inherit; background: none; border: 0; padding: 0; cursor: pointer; }
thead [aria-sort] button::after { content: " ▼"; }
thead [aria-sort="ascending"] button::after { content: " ▲"; }
img[role="button"] { cursor: zoom-in; } dialog { background: var(--card); color: var(--ink);
  border: 1px solid var(--line); border-radius: .6rem; cursor: zoom-out; text-align: center; }
dialog::backdrop { background: #000a; } dialog img { width: min(70vmin, 30rem); margin: 0 auto; }
thead th { color: var(--soft); font-weight: 600; white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; min-width: 8.5rem; }
.bar { height: .3rem; margin-top: .2rem; background: var(--line); border-radius: .15rem; overflow: hidden; }
.bar span { display: block; height: 100%; background: var(--accent); }
.best { font-weight: 700; }
.soft { color: var(--soft); font-weight: 400; }
small, .small { font-size: .85rem; }
dl { margin: 1rem 0 0; } dt { font-weight: 600; } dd { margin: 0 0 .5rem; color: var(--soft); }
.curves { display: grid; gap: 1.25rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); }
figure { margin: 0; } figcaption { font-weight: 600; }
.bits { display: block; width: 16rem; max-width: 100%; margin: .5rem 0; border: 1px solid var(--line);
  image-rendering: pixelated; }
svg { display: block; width: 100%; max-width: 34rem; height: auto; stroke-linejoin: round; }
.query { display: grid; grid-template-columns: 6rem 1fr; gap: 1rem; padding: 1rem 0;
  border-top: 1px solid var(--line); }
.query:first-of-type { border-top: 0; padding-top: 0; }
.query > .asked img { width: 5rem; height: 5rem; }
.strip { display: grid; grid-template-columns: 8.5rem 1fr; gap: .5rem; align-items: center;
  margin-bottom: .4rem; }
.strip ol { display: flex; flex-wrap: wrap; gap: .3rem; margin: 0; padding: 0; list-style: none; }
.item { position: relative; width: 2.9rem; padding: .15rem .15rem 0; text-align: center; font-size: .75rem;
  line-height: 1.35; border: 2px solid var(--line); border-radius: .35rem; color: var(--soft); }
.item img { width: 100%; } .item.right { border-color: var(--good); }
.item.wrong { border: 2px dashed var(--bad); color: var(--bad); font-weight: 700; }
img { display: block; image-rendering: pixelated; background: #000; border-radius: .15rem; }
details { margin-top: .75rem; } summary { cursor: pointer; font-weight: 600; }
.facts th { width: 14rem; font-weight: 600; color: var(--soft); } .facts td { overflow-wrap: anywhere; }
.curves .facts th { width: 55%; }
footer { margin-top: 1.5rem; color: var(--soft); font-size: .85rem; }
@media (max-width: 40rem) {
  main { padding: 1.25rem .75rem 3rem; } section { padding: 1rem .8rem; } h1 { font-size: 1.4rem; }
  .query, .strip { grid-template-columns: 1fr; gap: .35rem; } .facts th { width: auto; min-width: 7rem; }
  .strip ol { display: grid; grid-template-columns: repeat(5, minmax(0, 3.6rem)); } .item { width: auto; }
  th, td { padding: .4rem .45rem; }
  .metrics thead { display: none; } .metrics, .metrics tbody { display: block; }
  .metrics tr { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); padding: .5rem 0;
    border-bottom: 1px solid var(--line); } .metrics tr:last-child { border-bottom: 0; }
  .metrics tr > * { border: 0; padding: .2rem .45rem; } .metrics tr > th { grid-column: 1 / -1; }
  .metrics td { text-align: left; } .metrics td::before { content: attr(data-name); display: block;
    color: var(--soft); font-size: .8rem; font-weight: 400; } }
@media print { body { background: #fff; } section { break-inside: avoid; } }
"""


_SCRIPT = """
for (const table of document.querySelectorAll("table.metrics")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.title = "sort";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const first = column ? "descending" : "ascending";
      const other = column ? "ascending" : "descending";
      const order = head.getAttribute("aria-sort") === first ? other : first;
      heads.forEach(each => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      const key = row => row.cells[column].dataset.value;
      const rows = [...table.tBodies[0].rows].sort((a, b) => {
        const [x, y] = [key(a), key(b)];
        if (!column) return sign * a.cells[0].textContent.localeCompare(b.cells[0].textContent);
        if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
        return sign * (x - y);
      });
      table.tBodies[0].append(...rows);
    });
  });
}
const dialog = document.createElement("dialog");
const large = document.createElement("img");
const caption = document.createElement("p");
dialog.append(large, caption);
dialog.addEventListener("click", () => dialog.close());
document.body.append(dialog);
for (const picture of document.querySelectorAll(".item img, .asked img, img.bits")) {
  const show = () => {
    large.src = picture.src;
    large.alt = caption.textContent = picture.alt || "the query";
    dialog.showModal();
  };
  picture.tabIndex = 0;
  picture.setAttribute("role", "button");
  picture.addEventListener("click", show);
  picture.addEventListener("keydown", event => { if (event.key === "Enter") show(); });
}
"""

_DIGEST = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
_POLICY = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{_DIGEST}'"


def safe(text: object) -> Markup:
    """Return text escaped for use between tags and in quoted attributes."""
    return Markup(escape(str(text), quote=True))


def short(value: float) -> str:
    """Return a number in five figures."""
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e12 else f"{value:.5g}"


def join(parts: Iterable[str]) -> Markup:
    """Join pieces of markup."""
    return Markup("\n".join(parts))


def page(title: str, subtitle: Sequence[str], sections: Iterable[Markup], footer: str) -> str:
    """Return the whole document."""
    lines = join(f"<p>{safe(line)}</p>" for line in subtitle)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{safe(title)}</title>
<style>{_STYLE}</style>
</head>
<body><main>
<header><h1>{safe(title)}</h1>
{lines}
</header>
{join(sections)}
<footer>{safe(footer)}</footer>
</main>
<script>{_SCRIPT}</script>
</body>
</html>
"""


def section(title: str, *content: Markup) -> Markup:
    """Return a card with a heading."""
    return Markup(f"<section>\n<h2>{safe(title)}</h2>\n{join(content)}\n</section>")


def paragraph(text: str) -> Markup:
    """Return a line of explanation."""
    return Markup(f'<p class="small soft">{safe(text)}</p>')


def metric_table(names: Sequence[str], rows: Sequence[tuple[str, Sequence[Cell | None]]]) -> Markup:
    """Return methods × metrics in percent with a bar each; the best of a column is bold and says so.

    Parameters
    ----------
    names : sequence of str
        Of the metrics.
    rows : sequence of (label, cells)
        A cell is (value, standard error or None), or None where it was not measured.
    """
    columns = list(zip(*(cells for _, cells in rows), strict=True))
    best = [max((cell[0] for cell in column if cell is not None), default=None) for column in columns]
    head = join(f'<th scope="col" class="number">{safe(name)}</th>' for name in names)
    body = []
    for label, cells in rows:
        row = [
            _metric_cell(name, cell, top, len(rows) > 1)
            for name, cell, top in zip(names, cells, best, strict=True)
        ]
        body.append(f'<tr><th scope="row">{safe(label)}</th>{join(row)}</tr>')
    top_row = f'<thead><tr><th scope="col">method</th>{head}</tr></thead>'
    table = f'<table class="metrics">{top_row}\n<tbody>{join(body)}</tbody></table>'
    return Markup(f'<div class="wide">{table}</div>')


def definitions(items: Iterable[tuple[str, str]]) -> Markup:
    """Return names and what they mean."""
    return Markup(f"<dl>{join(f'<dt>{safe(name)}</dt><dd>{safe(text)}</dd>' for name, text in items)}</dl>")


def figures(items: Iterable[tuple[str, Markup]]) -> Markup:
    """Return captions with pictures, side by side where there is room."""
    parts = (
        f"<figure><figcaption>{safe(caption)}</figcaption>{picture}</figure>" for caption, picture in items
    )
    return Markup(f'<div class="curves">{join(parts)}</div>')


def facts(rows: Iterable[tuple[str, object]]) -> Markup:
    """Return a table of names and values."""
    body = (f'<tr><th scope="row">{safe(name)}</th><td>{safe(value)}</td></tr>' for name, value in rows)
    return Markup(f'<table class="facts small"><tbody>{join(body)}</tbody></table>')


def image(address: str, alt: str, kind: str) -> Markup:
    """Return a picture of a class of pictures that the style knows."""
    return Markup(f'<img class="{safe(kind)}" src="{safe(address)}" alt="{safe(alt)}">')


def fold(title: str, content: Markup) -> Markup:
    """Return content that opens on demand."""
    return Markup(f"<details><summary>{safe(title)}</summary>{content}</details>")


def query_block(title: str, image: str | None, strips: Iterable[tuple[str, Iterable[Markup]]]) -> Markup:
    """Return a query beside what each method retrieves for it, best first."""
    picture = "" if image is None else f'<img src="{safe(image)}" alt="">'
    lists = (
        f'<div class="strip"><span class="small">{safe(label)}</span><ol>{join(items)}</ol></div>'
        for label, items in strips
    )
    asked = f'<div class="asked"><h3>{safe(title)}</h3>{picture}</div>'
    return Markup(f'<div class="query">{asked}<div>{join(lists)}</div></div>')


def retrieved_item(caption: str, verdict: bool | None, image: str | None, title: str) -> Markup:
    """Return one retrieved row; ``verdict`` is right, wrong, or unknown (no labels)."""
    kind, sign, spoken = {
        True: (" right", "✓ ", "correct"),
        False: (" wrong", "✗ ", "incorrect"),
        None: ("", "", ""),
    }[verdict]
    alt = ", ".join(part for part in (title, spoken) if part)
    picture = "" if image is None else f'<img src="{safe(image)}" alt="{safe(alt)}">'
    return Markup(f'<li class="item{kind}" title="{safe(alt)}">{picture}{sign}{safe(caption)}</li>')


def _metric_cell(name: str, cell: Cell | None, best: float | None, compared: bool) -> Markup:
    if cell is None:
        return Markup(f'<td class="number soft" data-name="{safe(name)}">not measured</td>')
    value, error = cell
    spread = "" if error is None else f' <span class="soft small">± {100 * error:.1f}</span>'
    is_best = compared and value == best
    mark, kind = (' <span class="soft small">best</span>', " best") if is_best else ("", "")
    width = min(max(100 * value, 0), 100)
    data = f'data-name="{safe(name)}" data-value="{value!r}"'
    return Markup(
        f'<td class="number{kind}" {data}>{100 * value:.1f} %{spread}{mark}'
        f'<div class="bar"><span style="width:{width:.1f}%"></span></div></td>'
    )
