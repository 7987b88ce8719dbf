"""Comparing what a run is with what it is said to be, field by field.

A digest can only tell that two configurations differ; a person needs to know where.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .digest import canonical_json
from .errors import IdentityMismatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ABSENT = "(absent)"
_METHOD = "method.name"
_ENVIRONMENT = "environment"  # the one field that a user may allow to differ


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


def check_same_run(
    path: str, stored: Mapping[str, Any], given: Mapping[str, Any], *, allow_environment_change: bool
) -> None:
    """Raise `IdentityMismatch`, naming each field, unless a run at ``path`` may go on as what is given."""
    found = [
        item
        for item in differences(stored, given)
        if not (allow_environment_change and _is_environment(item[0]))
    ]
    if not found:
        return
    advice = "choose another run directory, or give what the run was started with"
    if all(_is_environment(name) for name, _, _ in found):
        advice = (
            "results may differ in the last bits; resume in the same environment, or allow the change "
            "(allow_environment_change=True, --allow-environment-change)"
        )
    raise IdentityMismatch(f"{path} belongs to another run:\n{describe(found)}\n{advice}")


def _is_environment(name: str) -> bool:
    return name.split(".")[0] == _ENVIRONMENT
