"""Several hosts for real, on this machine: a batch system, a login server, hosts on a network.

Everything that is started lives in a folder of the test's and is ended by its pid.  Where a program is
missing, or this user may not start it, the tests skip and say so.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import bitfleet as bf
import pytest
from bitfleet.pipeline import demo

if TYPE_CHECKING:
    from collections.abc import Callable

sys.path.insert(0, str(Path(__file__).parent))  # several_hosts is a module

from several_hosts import BLOCK_ROWS, METHOD


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled digits as a data set."""
    path = tmp_path_factory.mktemp("hosts") / "digits.zarr"
    bf.ingest(Path(demo.__file__).with_name("digits.npz"), path)
    return path


@pytest.fixture(scope="session")
def alone(digits: Path) -> tuple[str, str]:
    """Digests of model and codes of the same job in one process."""
    method = dict(METHOD)
    model = bf.train(digits, digits.parent / "alone", method.pop("name"), block_rows=BLOCK_ROWS, **method)
    return model.digest, bf.encode(model, digits, digits.parent / "alone.codes").digest


@pytest.fixture
def job(tmp_path: Path, digits: Path) -> Callable[..., Path]:
    """Return a function: a job file whose cluster is the given TOML; its run is beside it."""

    def written(cluster: str, block_rows: int = BLOCK_ROWS, **params: object) -> Path:
        table = METHOD | params
        method = "\n".join(f"{key} = {json.dumps(value)}" for key, value in table.items())
        path = tmp_path / "job.toml"
        path.write_text(
            f'[data]\npath = "{digits}"\n[method]\n{method}\n[run]\npath = "run"\nblock_rows = {block_rows}\n'
            f'{cluster}\n[encode]\npath = "codes.zarr"\n'
        )
        return path

    return written
