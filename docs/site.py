"""What the site has beside the pages in this folder: pages of the checkout, and pages that are generated.

README, CONTRIBUTING, CHANGELOG and the notebooks stay where people look for them in a checkout; links between
them and the pages here are led to their places in the site.
"""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "notebooks/index.md": "notebooks/README.md",
}
_LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)((?:#[^)]*)?)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that do not lie in this folder."""
    pages = {name: (ROOT / source).read_text("utf-8") for name, source in PAGES.items()}
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        pages[f"notebooks/{path.stem}.md"] = _notebook(path)
    pages |= {
        "all_methods.md": _methods(), "reference.md": _reference(), "command_line.md": _command_line()
    }  # fmt: skip
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links of the checkout to the pages of the site."""
    name = page.file.src_uri
    source = PAGES.get(name, name if name.startswith("notebooks/") else f"docs/{name}")
    here, depth = Path(source).parent, name.count("/")

    def led(match: re.Match[str]) -> str:
        text, target, anchor = match.groups()
        if "://" in target:
            return match[0]
        path = (ROOT / here / target).resolve().relative_to(ROOT).as_posix()
        if path not in PAGES.values() and not path.startswith(("docs/", "notebooks/")):
            return f"{text} (`{path}`)"  # a file of the checkout, and no page
        return f"[{text}]({'../' * depth}{_in_site(path)}{anchor})"

    return _LINK.sub(led, markdown)


def _in_site(path: str) -> str:
    """Return where a file of the checkout is in the site."""
    for name, source in PAGES.items():
        if path == source:
            return name
    return re.sub(r"\.ipynb$", ".md", path.removeprefix("docs/"))


def _notebook(path: Path) -> str:
    parts = []
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    parts.append(f"*This page is `notebooks/{path.name}` without its pictures; run it to see them.*")
    return "\n\n".join(parts)


def _methods() -> str:
    from bitfleet.pipeline.methods_table import markdown_table

    return f"# All methods\n\nAs `bitfleet methods` lists them.\n\n{markdown_table()}"


def _reference() -> str:
    import bitfleet

    parts = ["# Python reference\n\nAll public names, as `import bitfleet as bf` gives them.\n"]
    for name in bitfleet.__all__:
        value = getattr(bitfleet, name)
        parts.append(f"\n## {name}\n\n```text\n{_call(f'bf.{name}', value)}\n```\n\n{_docstring(value)}")
        for member, function in vars(value).items() if inspect.isclass(value) else ():
            if not member.startswith("_") and inspect.isfunction(function) and function.__doc__:
                call = _call(f"{name}.{member}", function)
                parts.append(f"\n### {name}.{member}\n\n```text\n{call}\n```\n\n{_docstring(function)}")
    return "\n".join(parts)


def _call(name: str, value: Any) -> str:
    """Return a name with its parameters, without their types, which the docstring tells."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return name
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values() if p.name != "self"]
    return name + str(inspect.Signature(bare))


def _docstring(value: Any) -> str:
    """Return a docstring with headings and lists in place of numpydoc's underlined sections."""
    text = inspect.getdoc(value) or ""
    head, *sections = re.split(r"^(.+)\n-{3,}$", text, flags=re.M)
    parts = [_text(head)]
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        body = body.strip("\n")
        if title == "Examples":
            body = f"```text\n{body}\n```"
        elif title in ("Parameters", "Attributes", "Returns", "Raises"):
            items = re.split(r"\n(?=\S)", body)
            body = "\n".join(f"- {_item(item)}" for item in items)
        else:
            body = _text(body)
        parts.append(f"**{title}**\n\n{body}")
    return "\n\n".join(part for part in parts if part.strip())


def _item(item: str) -> str:
    name, _, rest = item.partition("\n")
    return f"`{name.strip()}` {_text(' '.join(rest.split()))}".rstrip()


def _text(text: str) -> str:
    """Return text of a docstring in which code is code and nothing else is markup."""
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    outside = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([_<\[\]])", r"\\\1", part) for part in outside)


def _command_line() -> str:
    from bitfleet.pipeline.cli import app
    from typer.main import get_command

    command: Any = get_command(app)
    parts = ["# Command line\n", command.help]
    for name, verb in command.commands.items():
        parts.append(f"\n## bitfleet {name}\n\n{verb.help}\n\n| | |\n|---|---|")
        for parameter in verb.params:
            if getattr(parameter, "hidden", False) or parameter.name in ("json_", "quiet", "debug"):
                continue
            shown = ", ".join(f"`{option}`" for option in parameter.opts) or parameter.name
            if parameter.param_type_name == "argument":
                shown = f"`{parameter.metavar or parameter.name}`"
            parts.append(f"| {shown} | {' '.join((getattr(parameter, 'help', '') or '').split())} |")
    parts.append("\nEvery verb also takes `--json`, `--quiet` and `--debug`.\n")
    return "\n".join(parts)
