"""What is wrong with values that a person gave, in words: which key, what was expected, what came."""

from __future__ import annotations

import difflib
import typing
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from .errors import ConfigError

_T = TypeVar("_T", bound=BaseModel)


def validated(model: type[_T], value: Any, source: str) -> _T:
    """Return the validated model; `ConfigError` with ``source`` and each key that is wrong."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise ConfigError(f"{source}: {_explain(error, model)}") from None


def checked_as(key: str, value: Any, hint: Any) -> Any:
    """Return a value of the hinted type; `ConfigError` with its key if it has another."""
    try:
        return TypeAdapter(hint, config=ConfigDict(strict=True)).validate_python(plain(value))
    except ValidationError as error:
        messages = " or ".join(dict.fromkeys(item["msg"] for item in error.errors()))
        raise ConfigError(f"{key}: {messages}, got {value!r}") from None


def plain(value: Any) -> Any:
    """Return NumPy scalars as Python's own."""
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", None) == 0 else value


def nearest(key: str, known: list[str]) -> str:
    """Return a remark that names the known key most like this one, or nothing."""
    close = difflib.get_close_matches(key, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _explain(error: ValidationError, model: type[BaseModel]) -> str:
    parts, found = [], error.errors()
    within = [item["loc"] for item in found]
    for item in found:
        if item["type"] == "too_short" and any(
            loc[: len(item["loc"])] == item["loc"] and loc != item["loc"] for loc in within
        ):
            continue  # only because what is wrong inside has been left out
        place = ".".join(str(step) for step in item["loc"]) or "the file"
        if item["type"] == "extra_forbidden":
            known = _fields_at(model, item["loc"][:-1])
            parts.append(f"unknown key {place}{nearest(str(item['loc'][-1]), known)}")
        elif item["type"] == "missing":
            parts.append(f"{place} is required")
        else:
            shown = "" if item["type"] == "value_error" else f", got {item['input']!r}"
            parts.append(f"{place}: {item['msg'].removeprefix('Value error, ')}{shown}")
    return "; ".join(parts)


def _fields_at(model: type[BaseModel], location: tuple[Any, ...]) -> list[str]:
    for step in location:
        if isinstance(step, int):  # one of several tables
            continue
        annotation = model.model_fields[step].annotation
        options = typing.get_args(annotation) or (annotation,)
        model = next(o for o in options if isinstance(o, type) and issubclass(o, BaseModel))
    return list(model.model_fields)
