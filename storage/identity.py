"""Comparing what a run is with what it is said to be, field by field.

A digest can only tell that two configurations differ; a person needs to know where.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .digest import canonical_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ABSENT = "(absent)"
_METHOD = "method.name"


def as_json(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a deep copy as JSON would read it back: tuples become lists.

    Raises
    ------
    TypeError, ValueError
        If something is no JSON value, a key is no string, or a number is not finite.
    """
    copy: dict[str, Any] = json.loads(canonical_json(dict(value)))
    return copy


def differences(
    stored: Mapping[str, Any], given: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Yield ``(dotted field, stored value, given value)`` for every field that differs, sorted by name."""
    for key in sorted({*stored, *given}):
        left, right = stored.get(key, ABSENT), given.get(key, ABSENT)
        if isinstance(left, dict) and isinstance(right, dict):
            yield from differences(left, right, f"{prefix}{key}.")
        elif left != right or type(left) is not type(right):
            yield f"{prefix}{key}", left, right


def describe(found: list[tuple[str, Any, Any]], indent: str = "  ") -> str:
    """Return differences as lines of text; of another method the name alone, not its parameters."""
    if any(name == _METHOD for name, _, _ in found):
        found = [one for one in found if one[0] == _METHOD or not one[0].startswith("method.")]
    return "\n".join(f"{indent}{name}: stored {left!r}, given {right!r}" for name, left, right in found)
