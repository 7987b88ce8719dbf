"""What launchers ask batch systems and Kubernetes for, compared with files that people have looked at."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

import dask
import pytest
import yaml
from bitfleet.cluster import kubernetes, launchers
from bitfleet.cluster.errors import ClusterError, InsecureCluster
from bitfleet.cluster.launch import connect
from bitfleet.cluster.launchers import Size, batch_cluster

GOLDEN = Path(__file__).with_name("golden")
SIZE = Size(n_workers=10, max_workers=40, threads_per_worker=2, memory_limit="16 GiB")
BATCH = {
    "queue": "long",
    "account": "vectors",
    "walltime": "04:00:00",
    "directives": ("--requeue",),
    "prologue": ("module load python",),
    "interface": None,
    "host": "127.0.0.1",
    "python": "/opt/bitfleet/bin/python",
}
IMAGE = {"image": "ghcr.io/example/bitfleet:1", "name": "codes", "claim": "shared", "env_from": "store-keys"}


@pytest.mark.parametrize("kind", sorted(launchers.BATCH))
def test_the_job_of_a_batch_system(kind, tmp_path):
    pytest.importorskip("dask_jobqueue")
    options = BATCH | ({"directives": ("-r y",)} if kind != "slurm" else {})
    with (
        launchers.temporary(tmp_path) as (security, files),
        batch_cluster(kind, SIZE, options, shared=tmp_path, security=security) as cluster,
    ):
        script = cluster.job_script()
        assert [path.name for path in tmp_path.iterdir()] == [path.parent.name for path in files.values()][:1]
    shown = re.sub(
        r"(--tls-[a-z-]+) \S+", r"\1 FILE", re.sub(r"tls://[0-9.]+:\d+", "tls://HEAD:PORT", script)
    )
    assert str(tmp_path) not in shown
    assert shown == (GOLDEN / f"{kind}.sh").read_text()


def test_the_manifest_for_kubernetes():
    manifest = kubernetes.manifest(SIZE, IMAGE)
    assert manifest == json.loads((GOLDEN / "kubernetes.json").read_text())


def test_the_manifest_has_what_the_operator_expects():
    operator = pytest.importorskip("dask_kubernetes.operator", reason="needs bitfleet[kubernetes]")
    theirs = operator.make_cluster_spec("codes", image=IMAGE["image"], n_workers=10)
    ours = kubernetes.manifest(SIZE, IMAGE)
    assert ours["apiVersion"] == theirs["apiVersion"]
    assert ours["spec"].keys() == theirs["spec"].keys()
    assert (
        ours["spec"]["scheduler"]["service"]["selector"] == theirs["spec"]["scheduler"]["service"]["selector"]
    )
    ports = [
        {port["name"]: port["port"] for port in spec["spec"]["scheduler"]["service"]["ports"]}
        for spec in (ours, theirs)
    ]
    assert ports[0] == ports[1]


@pytest.mark.parametrize("name", ["daskcluster", "daskjob"])
def test_what_people_apply_has_the_fields_of_the_operators_schema(root, name):
    """A field that the schema does not know is dropped by Kubernetes without a word."""
    jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema")
    package = importlib.util.find_spec("dask_kubernetes")
    if package is None:
        pytest.skip("needs bitfleet[kubernetes]")
    (file,) = Path(package.submodule_search_locations[0]).rglob(f"crds/{name}.yaml")
    definition = next(yaml.safe_load_all(file.read_text()))["spec"]
    (version,) = definition["versions"]
    schema = closed(version["schema"]["openAPIV3Schema"])
    schema["properties"] |= {"apiVersion": {}, "kind": {}, "metadata": {}}
    applied = yaml.safe_load((root / f"cluster/deploy/{name.replace('dask', 'dask-')}.yaml").read_text())
    assert applied["apiVersion"] == f"{definition['group']}/{version['name']}"
    assert applied["kind"] == definition["names"]["kind"]
    jsonschema.Draft202012Validator(schema).validate(applied)
    if name == "daskcluster":
        jsonschema.Draft202012Validator(schema).validate(kubernetes.manifest(SIZE, IMAGE))


def closed(schema):
    """Return a schema in which a field that is not named is an error, as far as Kubernetes drops it."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    parts = {key: closed(value) for key, value in schema.items()}
    if schema.get("type") == "object" and "properties" in schema:
        parts["additionalProperties"] = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    return parts


@pytest.mark.parametrize(
    ("memory", "quantity"),
    [
        ("4 GiB", "4Gi"),
        ("512MiB", "512Mi"),
        ("2 GB", "2G"),
        ("1000000000", "1000000000"),
        ("500 mb", "500M"),
        ("5 kB", "5k"),
    ],
)
def test_memory_as_kubernetes_writes_it(memory, quantity):
    pod = kubernetes.manifest(Size(memory_limit=memory), IMAGE)["spec"]["worker"]["spec"]
    assert pod["containers"][0]["resources"]["limits"]["memory"] == quantity


def test_kubernetes_is_not_encrypted_and_says_so():
    with pytest.raises(InsecureCluster, match="without encryption"), connect("kubernetes", options=IMAGE):
        pass


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "dask_jobqueue", None)
    with (
        pytest.raises(ImportError, match=r"pip install 'bitfleet\[batch\]'"),
        connect("slurm", memory_limit="1 GiB"),
    ):
        pass


@pytest.mark.skipif(importlib.util.find_spec("dask_jobqueue") is None, reason="needs bitfleet[batch]")
def test_a_batch_system_that_is_not_here_is_an_error_not_a_wait(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    options = {"host": "127.0.0.1", "shared_folder": str(tmp_path)}
    with (
        pytest.raises(ClusterError, match=r"slurm refuses a job: .*sbatch"),
        connect("slurm", memory_limit="1 GiB", options=options),
    ):
        pass


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_a_host_that_is_not_this_machine_is_named(tmp_path, host):
    pytest.importorskip("dask_jobqueue")
    options = {"host": host, "shared_folder": str(tmp_path)}
    with (
        pytest.raises(ClusterError, match=f"an address of this machine, got '{host}'"),
        connect("slurm", memory_limit="1 GiB", options=options),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_batch_job_without_a_size_is_refused(tmp_path):
    pytest.importorskip("dask_jobqueue")
    nothing = dask.config.set({"jobqueue.slurm.memory": None})
    options = {"shared_folder": str(tmp_path)}
    with nothing, pytest.raises(ClusterError, match="memory"), connect("slurm", options=options):
        pass


def test_a_cluster_that_should_shrink_below_its_least_is_refused():
    with (
        pytest.raises(ValueError, match="max_workers >= n_workers, got 2 < 3"),
        connect(n_workers=3, max_workers=2),
    ):
        pass


def test_the_manifest_that_people_apply_is_the_launchers(root):
    text = (root / "cluster/deploy/dask-cluster.yaml").read_text()
    size = Size(n_workers=4, max_workers=16, memory_limit="4 GiB")
    ours = kubernetes.manifest(size, {"image": "bitfleet:latest", "claim": "runs"})
    assert yaml.safe_load(text) == ours
    job = yaml.safe_load((root / "cluster/deploy/dask-job.yaml").read_text())
    assert job["spec"]["cluster"]["spec"] == ours["spec"]


def test_nothing_that_is_deployed_runs_as_root(root):
    dockerfile = (root / "cluster/deploy/Dockerfile").read_text()
    assert re.findall(r"^USER (\S+)", dockerfile, re.MULTILINE)[-1] == str(kubernetes.USER)
