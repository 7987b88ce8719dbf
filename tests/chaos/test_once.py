"""Rows that come once, killed wherever they are: what is kept goes on to the same bits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

#: Forks a process for each kill, so that the library is imported once, and gives the same folder to all.
KILLER = """
import json, os, signal, sys
import numpy as np
import bitfleet as bf
from bitfleet.pipeline import once
from bitfleet.storage import run
from bitfleet.storage.dataset_writer import DatasetWriter
from bitfleet.storage.faults import Faults
from bitfleet.tasks.sketch import FrequentDirections

rng = np.random.default_rng(0)
X = (rng.normal(size=(4000, 6)) + 4 * rng.normal(size=(12, 6))[rng.integers(12, size=4000)]).astype("f4")
PARAMS = dict(n_bits=8, n_anchors=70, sketch_size=8, first_rows=300, block_rows=256)

def blocks(last=4000):
    for i in range(0, 4000, 100):
        if i >= last:
            os.kill(os.getpid(), signal.SIGKILL)
        yield X[i : i + 100]

def counted(owner, name, count):
    plain, left = getattr(owner, name), [count]
    def killed(*args, **kwargs):
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(*args, **kwargs)
    setattr(owner, name, killed)

class At(Faults):
    def __init__(self, point, commit):
        self.point, self.left = point, commit
    def reach(self, point):
        self.left -= point == "commit.before_list"
        if point == self.point and self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

def at_commit(point, commit):
    original = run.RunDirectory.checkpoints
    fault = At(point, commit)
    run.RunDirectory.checkpoints = lambda self, identity, **k: original(self, identity, faults=fault, **k)

KILLS = {
    "while rows come": lambda: 700,
    "before a part is whole": lambda: counted(DatasetWriter, "append", 1),
    "in the sketch": lambda: counted(FrequentDirections, "partial_fit", 2),
    "before a part is named": lambda: counted(DatasetWriter, "close", 1),
    "before the objects": lambda: at_commit("commit.before_objects", 1),
    "before the manifest": lambda: at_commit("commit.before_manifest", 1),
    "after the manifest": lambda: at_commit("commit.after_manifest", 0),
    "while codes are written": lambda: counted(once, "write_part", 3),
    "before affinities are removed": lambda: counted(once.shutil, "rmtree", 0),
}
whole = bf.encode_once(blocks(), sys.argv[1] + "/whole", **PARAMS)
told = {}
for name, arm in KILLS.items():
    child = os.fork()
    if not child:
        last = arm()
        bf.encode_once(blocks(*([] if last is None else [last])), sys.argv[1] + "/codes", **PARAMS)
        os._exit(0)
    told[name] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if "codes are written" in name or "removed" in name:
        told["kept " + name] = sorted(os.listdir(sys.argv[1] + "/codes"))
found = bf.encode_once((), sys.argv[1] + "/codes")
told["same"] = [found.model.digest == whole.model.digest, (found.codes() == whole.codes()).all().item()]
told["left"] = sorted(os.listdir(sys.argv[1] + "/codes"))
told["parts"] = sorted(os.listdir(sys.argv[1] + "/codes/codes")) == sorted(found.parts.names)
print(json.dumps(told))
"""


@pytest.mark.long
def test_kills_at_every_stage_end_in_the_same_bits(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLER, str(tmp_path)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(done.stdout)
    stages = [name for name, code in told.items() if isinstance(code, int) and not isinstance(code, bool)]
    assert len(stages) == 9
    assert {name: told[name] for name in stages} == dict.fromkeys(stages, -9)
    assert "affinities" in told["kept while codes are written"]
    assert "affinities" in told["kept before affinities are removed"]
    assert told["same"] == [True, True]
    assert told["left"] == ["codes", "config.json", "manifests", "objects"]
    assert told["parts"]
