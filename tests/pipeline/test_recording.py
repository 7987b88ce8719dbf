"""What drivers write of their ends, also of one whose place another has taken."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import bitfleet as bf
import numpy as np
import pytest
from bitfleet.pipeline.errors import Interrupted
from bitfleet.pipeline.opening import open_run
from bitfleet.pipeline.recording import recorded_job
from bitfleet.storage import requests
from bitfleet.storage.run import status

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("error", [Interrupted(1), OSError("codes.zarr: no such file"), KeyboardInterrupt()])
def test_a_driver_whose_place_is_taken_does_not_end_the_job(tmp_path: Path, error: BaseException) -> None:
    bf.train(np.eye(8, dtype=np.float32), tmp_path / "run", "lsh", n_bits=8)
    run = open_run(tmp_path / "run")

    def end_after(then: str | None) -> dict[str, object]:
        requests.announce_driver(run.path, "s", 0, "first")
        with (
            suppress(type(error)),
            recorded_job(run, submission="s", generation=0, driver="first"),
        ):
            if then is not None:
                requests.announce_driver(run.path, "s", 0, then)
            raise error
        return status(run.path)

    assert end_after(None)["state"] == ("failed" if isinstance(error, OSError) else "interrupted")
    found = end_after("second")
    assert found["state"] == "running"
    assert found["heartbeat_age"] is not None  # it is the other's now
    assert run.directory.events().read()[-1]["kind"] == "overtaken"
