"""Runs of every format that was ever written verify, go on and encode as they did."""

from __future__ import annotations

import json
import shutil

import bitfleet as bf
import numpy as np
import pytest
from bitfleet.cluster import fingerprint
from bitfleet.storage.run import FORMAT_VERSION, status
from bitfleet.storage.verify import verify_run
from chaos_cases import digits
from golden_run import GOLDEN, N_ROWS


@pytest.mark.parametrize("version", range(1, FORMAT_VERSION + 1))
def test_an_old_run_goes_on(tmp_path, version):
    expected = json.loads((GOLDEN / f"run-{version}.json").read_text())
    shutil.unpack_archive(GOLDEN / f"run-{version}.zip", tmp_path)
    run = tmp_path / "run"
    assert verify_run(run) == []
    assert (status(run)["state"], status(run)["round"]) == ("interrupted", 2)
    same = fingerprint.environment() == expected["environment"]
    if not same:
        with pytest.raises(bf.IdentityMismatch, match="environment"):
            bf.resume(run)
    model = bf.resume(run, allow_environment_change=True)
    assert model.digest == expected["model"] or not same
    np.testing.assert_allclose(model.state.arrays["weights"], expected["weights"], rtol=1e-9, atol=1e-12)
    assert model.encode(digits(N_ROWS)).tobytes().hex() == expected["codes"]
