"""Makes the runs in ``golden/``: a format that has once been written is read for good.

``python tests/chaos/golden_run.py`` adds the run of the present format; those that are there never change.
An ordinary module, unlike test modules: ``conftest.py`` puts its folder on the path.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import bitfleet as bf
from bitfleet.cluster import fingerprint
from bitfleet.pipeline import runs
from bitfleet.pipeline.config import build_method
from bitfleet.pipeline.errors import Interrupted
from bitfleet.storage.run import FORMAT_VERSION
from chaos_cases import digits

GOLDEN = Path(__file__).with_name("golden")
N_ROWS = 120


def main() -> None:
    """Write a run that was interrupted after two rounds, and what it ends in."""
    events: list[object] = []
    control = runs.Control(emit=events.append, should_stop=lambda: len(events) > 2)
    method = build_method("itq", {"n_bits": 6, "n_iter": 4})
    GOLDEN.mkdir(exist_ok=True)
    name = f"run-{FORMAT_VERSION}"
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        with suppress(Interrupted):
            runs.start(digits(N_ROWS), run, method, control=control)
        shutil.make_archive(str(GOLDEN / name), "zip", folder)
        model = bf.resume(run)
    expected = {
        "environment": fingerprint.environment(),
        "model": model.digest,
        "weights": model.state.arrays["weights"].tolist(),
        "codes": model.encode(digits(N_ROWS)).tobytes().hex(),
    }
    (GOLDEN / f"{name}.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
