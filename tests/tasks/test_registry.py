"""Methods are found by name, and each keeps the contract that the loop and the interface rely on."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import pickle

import pytest
from bitfleet.tasks import registry
from bitfleet.tasks.methods.base import LinearMethod
from bitfleet.tasks.protocols import Method


@pytest.mark.parametrize("name", registry.METHODS)
def test_each_method_keeps_the_contract(name: str) -> None:
    cls = registry.get(name)
    method = cls()
    assert isinstance(method, Method)
    assert cls.name == name
    assert dataclasses.is_dataclass(cls)
    assert cls.__dataclass_params__.frozen
    fields = {field.name for field in dataclasses.fields(cls)}
    assert "n_bits" in fields
    if issubclass(cls, LinearMethod):
        assert {"center", "n_components"} <= fields
    assert ("n_active" in fields) == cls.sparse
    assert pickle.loads(pickle.dumps(method)) == method
    assert len(pickle.dumps(method)) < 500


def test_an_unknown_name_gets_the_list_and_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"method 'LHS', expected one of sign, lsh.*did you mean 'lsh'\?"):
        registry.get("LHS")


def test_methods_of_other_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    point = importlib.metadata.EntryPoint("mine", "bitfleet.tasks.methods.lsh:LSH", registry.GROUP)

    def points(**wanted: str) -> list[importlib.metadata.EntryPoint]:
        return [point] if wanted.get("name", "mine") == "mine" else []

    monkeypatch.setattr(registry, "entry_points", points)
    assert registry.names() == [*registry.METHODS, "mine"]
    assert registry.get("mine") is registry.get("lsh")


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("os:system", "is no dataclass of a method"),
        ("bitfleet.tasks.protocols:RoundState", "is no dataclass of a method"),
        ("no_such_package:Thing", "cannot be imported"),
        ("bitfleet.tasks.methods.lsh:NoSuch", "cannot be imported"),
    ],
)
def test_what_another_package_offers_must_be_a_method(
    monkeypatch: pytest.MonkeyPatch, value: str, complaint: str
) -> None:
    point = importlib.metadata.EntryPoint("mine", value, registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda **wanted: [point])
    with pytest.raises(ValueError, match=complaint):
        registry.get("mine")
