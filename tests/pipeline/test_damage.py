"""A whole run, each of its files damaged: a named error or the right bits, never others."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import bitfleet as bf
import numpy as np
import pytest
from bitfleet.pipeline.inspection import verify_path
from bitfleet.storage.errors import CorruptObject, IdentityMismatch, UnsafeObject

if TYPE_CHECKING:
    from pathlib import Path

DAMAGES = {
    "truncate": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "flip": lambda path: flip(path),
    "delete": lambda path: path.unlink(),
    "stale": lambda path: path.write_bytes(b"{}"),
}
NAMED = (CorruptObject, IdentityMismatch, UnsafeObject, bf.ConfigError)
NEITHER_STATE_NOR_MODEL = {"events.jsonl"}


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run of three rounds and the digest of its model."""
    folder = tmp_path_factory.mktemp("finished")
    np.save(folder / "x.npy", np.random.default_rng(8).normal(size=(90, 6)).astype(np.float32))
    data = bf.ingest(folder / "x.npy", folder / "x.zarr")
    model = bf.train(data, folder / "run", "posh", n_bits=16, n_active=3, n_epochs=2, block_rows=32)
    return folder / "run", model.digest


@pytest.mark.parametrize("damage", DAMAGES)
def test_no_damage_gives_another_model(finished: tuple[Path, str], tmp_path: Path, damage: str) -> None:
    original, digest = finished
    names = sorted(p.relative_to(original) for p in original.rglob("*") if p.is_file())
    assert {name.parts[0] for name in names} >= {"config.json", "manifests", "objects", "model.zarr"}
    for number, name in enumerate(names):
        run = tmp_path / str(number)
        shutil.copytree(original, run)
        DAMAGES[damage](run / name)
        newest_gone = damage == "delete" and name.as_posix() == "manifests/00000003.json"
        if name.name not in NEITHER_STATE_NOR_MODEL and not newest_gone:
            assert verify_path(run), f"{name} was damaged, and nothing was noticed"
        for read in (bf.load, bf.resume):
            try:
                found = read(run).digest
            except NAMED:
                continue
            assert found == digest, f"{name}: another model"
