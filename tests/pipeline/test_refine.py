"""Decoders kept with models, and evaluation with refined candidates against brute force."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import bitfleet as bf
import numpy as np
import pytest
import xarray
from bitfleet.pipeline.api import encode_into
from bitfleet.pipeline.cli import app
from bitfleet.pipeline.errors import DATA
from bitfleet.pipeline.executors import SERIAL
from bitfleet.pipeline.model import load
from bitfleet.pipeline.refine import fit_decoder
from bitfleet.storage import models
from bitfleet.storage.datasets import Dataset, DatasetWriter
from bitfleet.tasks.search import tie_keys
from scipy.spatial.distance import cdist
from typer.testing import CliRunner

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bitfleet.pipeline.model import Model
    from distributed import Client

METRICS = ("map@20", "precision@50", "recall5@30")
Split = tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


@pytest.fixture
def split(blobs: tuple[np.ndarray, np.ndarray]) -> Split:
    vectors, labels = blobs
    return (vectors[:500], labels[:500]), (vectors[500:], labels[500:])


@pytest.fixture
def plain(split: Split) -> Model:
    return bf.POSH(n_bits=64, n_active=6, n_epochs=3, n_components=8, random_state=2).fit(split[0][0]).model_


@pytest.fixture
def model(plain: Model, split: Split) -> Model:
    return fit_decoder(plain, split[0][0])


def stored(path: Path, rows: tuple[np.ndarray, np.ndarray]) -> Dataset:
    writer = DatasetWriter(path, n_features=24, dtype=np.float32, chunk_rows=64, with_labels=True)
    writer.append(*rows)
    return writer.close()


def ranked(model: Model, split: Split, k: int, factor: int) -> np.ndarray:
    """The first k rows by (decoded distance, Hamming, tie, row) among the factor * k nearest codes."""
    (database, _), (queries, _) = split
    codes = [
        np.unpackbits(model.encode(x), axis=1, bitorder="little").astype(float) for x in (queries, database)
    ]
    hamming = cdist(*codes, "cityblock")
    ties = np.broadcast_to(tie_keys(0, np.arange(len(database))), hamming.shape)
    rows = np.broadcast_to(np.arange(len(database)), hamming.shape)
    candidates = np.lexsort((rows, ties, hamming), axis=1)[:, : factor * k]
    space = model.state.arrays["components"]
    decoded = (model.decode(model.encode(database)) - model.state.arrays["mean"]) @ space
    found = cdist((queries - model.state.arrays["mean"]) @ space, decoded)
    distance = np.round(np.take_along_axis(found, candidates, axis=1), 9)  # equal codes, equal distances
    return np.take_along_axis(candidates, np.argsort(distance, axis=1, kind="stable")[:, :k], axis=1)


@pytest.mark.parametrize("factor", [1, 2, 5])
def test_every_metric_equals_brute_force(model: Model, split: Split, factor: int) -> None:
    result = bf.evaluate(model, *split, METRICS, refine=factor)
    (database, labels), (queries, wanted) = split
    hits = labels[ranked(model, split, 20, factor)] == wanted[:, None]
    precision = np.cumsum(hits, axis=1) / np.arange(1, 21)
    expected = (precision * hits).sum(axis=1) / np.maximum(hits.sum(axis=1), 1)
    np.testing.assert_allclose(result["per_query"].sel(metric="map@20"), expected)
    first = ranked(model, split, 50, factor)
    np.testing.assert_allclose(
        result["per_query"].sel(metric="precision@50"), (labels[first] == wanted[:, None]).mean(axis=1)
    )
    near = np.argsort(cdist(queries, database), axis=1)[:, :5]
    lists = ranked(model, split, 30, factor)
    shares = [len(set(a) & set(b)) / 5 for a, b in zip(near, lists, strict=True)]
    np.testing.assert_allclose(result["per_query"].sel(metric="recall5@30"), shares)
    np.testing.assert_array_equal(result["retrieved"], first[:, :10])
    assert result.attrs["refine"] == factor


def test_refinement_helps_and_says_so(split: Split) -> None:
    vectors = split[0][0]
    model = fit_decoder(bf.POSH(n_bits=256, n_active=16, n_epochs=3, random_state=2).fit(vectors), vectors)
    before, after = (bf.evaluate(model, *split, METRICS, refine=factor) for factor in (None, 2))
    gain = (after["value"] - before["value"]).sel(metric="recall5@30")
    assert float(gain) > 0.05
    assert "refine" not in before.attrs
    assert "the 2n nearest codes" in after.attrs["refinement"]
    steps = bf.evaluate(model, *split, METRICS, refine=2, n_sbiht=60)
    assert "60 steps of Algorithm 4" in steps.attrs["refinement"]
    assert not np.array_equal(steps["retrieved"], after["retrieved"])


def test_blocks_storage_passes_and_workers_do_not_show(
    plain: Model,
    split: Split,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    clusters: Callable[[int], Client],
) -> None:
    database, queries = stored(tmp_path / "a.zarr", split[0]), stored(tmp_path / "b.zarr", split[1])
    codes = encode_into(plain, database, tmp_path / "codes.zarr", SERIAL)
    for module in ("neighbors", "refine"):
        monkeypatch.setattr(f"bitfleet.pipeline.{module}.base_rows", lambda n_features: 64)  # eight leaves
    model = fit_decoder(plain, database)
    assert fit_decoder(plain, database, scheduler=clusters(2)).digest == model.digest
    expected = bf.evaluate(model, database, queries, METRICS, refine=2)
    from_codes = bf.evaluate(
        model, database, queries, METRICS, refine=2, codes=codes
    )  # older than the decoder
    assert from_codes.identical(expected)
    there = bf.evaluate(model, database, queries, METRICS, refine=2, scheduler=clusters(2))
    assert there.identical(expected)
    monkeypatch.setattr("bitfleet.pipeline.evaluate._HELD", 900)
    monkeypatch.setattr("bitfleet.pipeline.neighbors.base_rows", lambda n_features: 7)
    xarray.testing.assert_equal(bf.evaluate(model, *split, METRICS, refine=2), expected)


def test_a_decoder_is_saved_with_its_model(plain: Model, model: Model, split: Split, tmp_path: Path) -> None:
    path = model.save(tmp_path / "m.zarr")
    again = load(path)
    codes = plain.encode(split[0][0])
    np.testing.assert_array_equal(again.encode(split[0][0]), codes)
    np.testing.assert_array_equal(again.decode(codes), model.decode(codes))
    np.testing.assert_array_equal(again.decode(codes, n_sbiht=3), model.decode(codes, n_sbiht=3))
    assert again.digest == model.digest != plain.digest
    assert again.encoder_digest == model.encoder_digest == plain.digest == plain.encoder_digest
    assert again.state.arrays.keys() == plain.state.arrays.keys()
    assert fit_decoder(path, split[0][0], ridge=3.0).digest not in (model.digest, plain.digest)
    assert replace(again, decoder=None, path=None).digest == plain.digest


def test_what_was_changed_is_noticed(model: Model, tmp_path: Path) -> None:
    path = model.save(tmp_path / "m.zarr")
    chunk = max(
        (p for p in (path / "decoder_matrix").rglob("*") if p.is_file()), key=lambda p: p.stat().st_size
    )
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2] ^= 1
    chunk.write_bytes(bytes(data))
    with pytest.raises(bf.CorruptObject):
        load(path)


@pytest.mark.parametrize(
    ("stated", "matrix"),
    [
        ({"ridge": -1.0}, None),
        ({"ridge": "1"}, None),
        ({"ridge": True}, None),
        ({}, None),
        (None, None),
        ({"ridge": 1.0}, np.zeros((64, 7))),
        ({"ridge": 1.0}, np.zeros((63, 8))),
        ({"ridge": 1.0}, np.zeros((64, 8), np.float32)),
        ({"ridge": 1.0}, np.full((64, 8), np.nan)),
        ({"ridge": 1.0}, np.zeros(0)),
    ],
)
def test_decoders_that_are_none_are_refused(
    model: Model, tmp_path: Path, stated: Any, matrix: np.ndarray | None
) -> None:
    arrays = {**model.arrays} if matrix is None else {**model.arrays, "decoder_matrix": matrix}
    header = {**model.header, "decoder": stated}
    models.save_model(tmp_path / "m.zarr", header, arrays)
    with pytest.raises(bf.CorruptObject, match="broken"):
        load(tmp_path / "m.zarr")


def test_a_matrix_without_a_header_is_refused_and_the_other_way_round(model: Model, tmp_path: Path) -> None:
    header = {key: value for key, value in model.header.items() if key != "decoder"}
    models.save_model(tmp_path / "a.zarr", header, model.arrays)
    models.save_model(tmp_path / "b.zarr", model.header, model.state.arrays)
    for name in ("a.zarr", "b.zarr"):
        with pytest.raises(bf.CorruptObject, match="broken"):
            load(tmp_path / name)


def test_dense_codes_are_refined_too(split: Split) -> None:
    itq = fit_decoder(bf.ITQ(n_bits=24, random_state=0).fit(split[0][0]), split[0][0], ridge=0)
    recall = [
        float(bf.evaluate(itq, *split, "recall5@30", refine=factor)["value"][0]) for factor in (None, 3)
    ]
    assert recall[1] > recall[0]
    with pytest.raises(bf.ConfigError, match="winner-take-all"):
        bf.evaluate(itq, *split, refine=2, n_sbiht=1)
    with pytest.raises(bf.ConfigError, match="winner-take-all"):
        itq.decode(itq.encode(split[0][0]), n_sbiht=1)
    pursuit = bf.PursuitHash(n_bits=64, n_active=6, n_epochs=1, random_state=0).fit(split[0][0])
    with pytest.raises(bf.ConfigError, match="winner-take-all codes of a linear map; pursuit_hash has none"):
        bf.evaluate(fit_decoder(pursuit, split[0][0]), *split, refine=2, n_sbiht=1)


def test_what_makes_no_sense_is_refused(plain: Model, model: Model, split: Split) -> None:
    with pytest.raises(bf.ConfigError, match="no decoder; fit one"):
        bf.evaluate(plain, *split, refine=2)
    with pytest.raises(bf.ConfigError, match="no decoder; fit one"):
        plain.decode(plain.encode(split[0][0]))
    for factor in (0, 1.5, True):
        with pytest.raises(bf.ConfigError, match="refine to be an integer >= 1"):
            bf.evaluate(model, *split, refine=factor)  # type: ignore[arg-type]
    with pytest.raises(bf.ConfigError, match="needs refine="):
        bf.evaluate(model, *split, n_sbiht=3)
    for ridge in (-1, float("nan"), "1", True):
        with pytest.raises(bf.ConfigError, match="ridge"):
            fit_decoder(plain, split[0][0], ridge=ridge)  # type: ignore[arg-type]
    with pytest.raises(bf.ConfigError, match="rows of 24 features"):
        fit_decoder(plain, split[0][0][:, :5])
    with pytest.raises(bf.ConfigError, match="got 0 of 24"):
        fit_decoder(plain, split[0][0][:0])


def test_on_the_command_line(plain: Model, model: Model, split: Split, tmp_path: Path) -> None:
    def run(*words: object) -> tuple[int, str]:
        done = CliRunner().invoke(app, [str(word) for word in words])
        return done.exit_code, done.stdout

    database, queries = stored(tmp_path / "a.zarr", split[0]), stored(tmp_path / "b.zarr", split[1])
    plain.save(tmp_path / "plain.zarr")
    code, out = run("fit-decoder", tmp_path / "plain.zarr", database.path, tmp_path / "m.zarr", "--json")
    assert code == 0
    assert json.loads(out)["digest"] == model.digest
    words = (database.path, queries.path, "--metrics", "map@20", "--json")
    code, out = run("evaluate", tmp_path / "m.zarr", *words, "--refine", 2)
    assert code == 0
    expected = bf.evaluate(model, *split, "map@20", refine=2)
    assert json.loads(out)["metrics"][0]["value"] == pytest.approx(float(expected["value"][0]))
    assert json.loads(out)["refine"] == 2
    assert run("evaluate", tmp_path / "plain.zarr", *words, "--refine", 2)[0] == 2


def test_a_job_fits_the_decoder_once_and_keeps_it(plain: Model, split: Split, tmp_path: Path) -> None:
    database, queries = stored(tmp_path / "a.zarr", split[0]), stored(tmp_path / "b.zarr", split[1])
    (tmp_path / "job.toml").write_text(
        """
        data.path = "a.zarr"
        method = {name = "posh", n_bits = 64, n_active = 6, n_epochs = 3, n_components = 8}
        run = {path = "run", seed = 2}
        cluster.scheduler = "serial"
        evaluate = {queries = "b.zarr", metrics = ["map@20"], refine = 2}
        """
    )

    def run(*words: object, code: int = 0) -> Any:
        done = CliRunner().invoke(app, [str(word) for word in words])
        assert done.exit_code == code, done.stderr
        return json.loads(done.stdout) if code == 0 else done.stderr

    first = run("run", tmp_path / "job.toml", "--json")
    fitted = load(tmp_path / "run" / "decoder.zarr")
    assert first["model"] == plain.digest == fitted.encoder_digest
    expected = bf.evaluate(fitted, database, queries, "map@20", refine=2, seed=2)
    assert first["metrics"] == {"map@20": float(expected["value"][0])}
    assert run("run", tmp_path / "job.toml", "--json") == first
    assert run("run", tmp_path / "job.toml", "--set", "evaluate.refine=3", "--json")["metrics"]
    assert run("verify", tmp_path / "run", "--json")["clean"]
    other = fit_decoder(bf.POSH(n_bits=64, n_active=6, random_state=3).fit(split[0][0]), split[0][0])
    for path in sorted((tmp_path / "run" / "decoder.zarr").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (tmp_path / "run" / "decoder.zarr").rmdir()
    other.save(tmp_path / "run" / "decoder.zarr")
    assert "no decoder of this run" in run("run", tmp_path / "job.toml", code=4)


def test_numbers_too_large_for_a_decoder_are_refused_as_data(split: Split, tmp_path: Path) -> None:
    rows = split[0][0].astype(float) * 1e200
    model = bf.LSH(n_bits=16, random_state=0).fit(rows)
    with pytest.raises(bf.DataRefused, match="no decoder can be fitted to these rows"):
        fit_decoder(model, rows)
    np.save(tmp_path / "rows.npy", rows)
    bf.ingest(tmp_path / "rows.npy", tmp_path / "rows.zarr")
    model.save(tmp_path / "model.zarr")
    told = CliRunner().invoke(
        app, ["fit-decoder", *(str(tmp_path / name) for name in ("model.zarr", "rows.zarr", "new.zarr"))]
    )
    assert told.exit_code == DATA
    assert "huge numbers" in told.stderr
    assert not (tmp_path / "new.zarr").exists()
