"""The environment fingerprint: complete, stable, comparable field by field."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys

import cluster_toys as toys
import numpy as np
import pytest
import scipy
from bitfleet.cluster import fingerprint
from bitfleet.cluster.errors import EnvironmentMismatch


def environment_in_a_new_process(code: str = "", **variables: str) -> dict[str, str]:
    code += "\nimport json; from bitfleet.cluster.fingerprint import environment"
    code += "\nprint(json.dumps(environment()))"
    command, variables = [sys.executable, "-c", code], {**os.environ, **variables}
    return json.loads(subprocess.run(command, env=variables, capture_output=True, check=True).stdout)


def test_it_names_libraries_kernels_blas_and_processor():
    env = fingerprint.environment()
    assert env["numpy"] == np.__version__
    assert env["scipy"] == scipy.__version__
    assert env["machine"] == platform.machine()
    assert env["kernels"].startswith("numba ")
    assert all(f"{pool['version']} {pool['architecture']}" in env["blas"] for pool in toys.blas_pools())
    assert all(isinstance(value, str) for value in env.values())


def test_another_process_has_the_same_whatever_its_threads_and_its_other_libraries():
    env = fingerprint.environment()
    assert environment_in_a_new_process("import sklearn.cluster, faiss", OPENBLAS_NUM_THREADS="1") == env


def test_a_process_without_numba_differs_in_its_kernels(tmp_path):
    (tmp_path / "numba.py").write_text("raise ImportError('not installed')")
    env = environment_in_a_new_process(PYTHONPATH=str(tmp_path))
    assert fingerprint.differences(fingerprint.environment(), env) == [
        f"kernels: {fingerprint.environment()['kernels']} expected, numpy found"
    ]


def test_the_digest_is_that_of_canonical_json():
    env = {"b": "2", "a": "1"}
    assert fingerprint.digest(env) == hashlib.sha256(b'{"a":"1","b":"2"}').hexdigest()
    assert fingerprint.digest({"a": "1", "b": "2"}) == fingerprint.digest(env)
    assert fingerprint.digest({"a": "1", "b": "3"}) != fingerprint.digest(env)


def test_a_caller_cannot_change_the_fingerprint():
    fingerprint.environment()["numpy"] = "0"
    assert fingerprint.environment()["numpy"] == np.__version__


def test_a_mismatch_names_each_field_and_the_remedy():
    with pytest.raises(EnvironmentMismatch) as caught:
        fingerprint.check(
            {"numpy": "2.4", "blas": "x", "old": "1"}, {"numpy": "2.3", "blas": "x"}, "worker w"
        )
    message = str(caught.value)
    assert message.startswith("worker w ")
    assert "numpy: 2.4 expected, 2.3 found" in message
    assert "old: 1 expected, nothing found" in message
    assert "b:" not in message
    assert "allow_environment_change" in message
