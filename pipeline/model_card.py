"""A model for others: a card that says what it is and how good, and its encoder as plain arrays."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..storage.run import RunDirectory
from ..tasks.encode import ProjectionEncoder
from ..tasks.methods.sign import SignEncoder
from .config import method_table
from .errors import ConfigError
from .report import method_label
from .results import as_record, read_results

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from pathlib import Path

    import xarray

    from .model import Model

FORMAT, FORMAT_VERSION = "bitfleet-model-card", 1
_NOT_TOLD = {
    "metrics", "model", "method", "format", "format_version", "seconds", "peak_bytes", "paths", "shown",
    "sha256",
}  # fmt: skip


def write_encoder(model: Model, path: Path) -> None:
    """Write ``mean``, ``projection``, ``n_bits`` and ``n_active`` (0: dense) as npz.

    Raises
    ------
    ConfigError
        If the model's codes are not those of one linear map.
    """
    encoder: Any = model.encoder()
    if not isinstance(encoder, ProjectionEncoder | SignEncoder):
        raise ConfigError(
            f"codes of {model.method.name} are no signs, or largest entries, of one linear map: "
            "export codes, or load the model where rows are encoded"
        )
    with path.open("wb") as file:
        np.savez(
            file,
            mean=encoder.mean,
            projection=encoder.projection,
            n_bits=np.int64(encoder.n_bits),
            n_active=np.int64(encoder.n_active or 0),
        )


def card(
    model: Model, run: str | os.PathLike[str] | None = None, results: xarray.Dataset | None = None
) -> dict[str, Any]:
    """Return what a card says, as JSON values.

    Parameters
    ----------
    model : Model
    run : path, optional
        Whose seed, environment and results are told.
    results : xarray.Dataset, optional
        From `bitfleet.evaluate`, instead of the run's.

    Returns
    -------
    dict
        ``title``, ``method`` (name and parameters), ``codes`` (bits, ones, bytes), ``model`` (digest),
        ``training`` (rows, features, digest of the data, seed, rounds, environment; what is known), and
        ``evaluation``: None, or metrics with standard errors and definitions, and of what.
    """
    from .. import __version__

    encoder = model.encoder()
    training: dict[str, Any] = {"n_rows": model.info.n_rows, "n_features": model.info.n_features}
    training["rounds"] = model.state.round
    measured = None if results is None else as_record(results)
    if run is not None:
        config = RunDirectory.open(run).config
        training |= {key: config.get(key) for key in ("data_digest", "seed", "block_rows", "fan_in")}
        measured = read_results(run) if measured is None else measured
    if measured is not None and measured.get("model") not in (None, model.digest, model.encoder_digest):
        raise ConfigError(
            f"the results are of the model {str(measured['model'])[:12]}, this is {model.digest[:12]}; "
            "evaluate it again"
        )
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "title": method_label(method_table(model.method) | {"n_bits": model.n_bits}),
        "bitfleet": __version__,
        "method": method_table(model.method),
        "codes": {
            "n_bits": model.n_bits,
            "n_active": encoder.n_active,
            "bytes": math.ceil(model.n_bits / 8),
        },
        "model": model.digest,
        "training": training,
        "evaluation": None if measured is None else _evaluation(measured),
    }


def write_json(content: Mapping[str, Any], path: Path) -> None:
    """Write a card for programs."""
    path.write_text(json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n", "utf-8")


def write_markdown(content: Mapping[str, Any], path: Path) -> None:
    """Write a card for people."""
    path.write_text(markdown(content), "utf-8")


def markdown(content: Mapping[str, Any]) -> str:
    """Return a card as Markdown."""
    codes, evaluation = content["codes"], content["evaluation"]
    ones = "" if codes["n_active"] is None else f", {codes['n_active']} of them ones"
    lines = [
        f"# {content['title']}",
        "",
        f"Codes of {codes['n_bits']} bits{ones}: {codes['bytes']} bytes a vector of "
        f"{content['training']['n_features']} features, packed least significant bit first. "
        f"Made with bitfleet {content['bitfleet']}.",
        "",
        "## Accuracy",
        "",
        *(_accuracy(evaluation) if evaluation else ["Not measured: `bitfleet evaluate`."]),
        "",
        "## Method",
        "",
        *_table(("parameter", "value"), content["method"]),
        "",
        "## Training",
        "",
        *_table(("", "value"), content["training"]),
        "",
        "## Use",
        "",
        "```python",
        "import bitfleet as bf",
        "",
        'model = bf.load("PATH OF THE MODEL")',
        f'assert model.digest == "{content["model"]}"',
        "codes = model.encode(vectors)",
        "```",
        "",
        "A code depends on its row and the model alone; rows of another kind than those of the training may",
        "have codes that tell little.",
        "",
    ]
    return "\n".join(lines)


def _evaluation(measured: Mapping[str, Any]) -> dict[str, Any]:
    about = {key: value for key, value in measured.items() if key not in _NOT_TOLD and value is not None}
    return {"metrics": measured["metrics"], **about}


def _accuracy(evaluation: Mapping[str, Any]) -> list[str]:
    lines = ["| metric | value | standard error | meaning |", "|---|---|---|---|"]
    for metric in evaluation["metrics"]:
        error = metric["standard_error"]
        spread = "" if error is None else f"{100 * error:.2f} %"
        lines.append(
            f"| {metric['name']} | {100 * metric['value']:.2f} % | {spread} | {_cell(metric['definition'])} |"
        )
    about = {key: value for key, value in evaluation.items() if key != "metrics"}
    return [*lines, "", *_table(("measured on", ""), about)]


def _table(head: tuple[str, str], rows: Mapping[str, Any]) -> list[str]:
    body = [f"| {_cell(name)} | {_cell(value)} |" for name, value in rows.items() if value is not None]
    return [f"| {head[0]} | {head[1]} |", "|---|---|", *body]


def _cell(value: Any) -> str:
    return " ".join(str(value).replace("|", "\\|").split())
