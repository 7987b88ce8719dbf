"""Exported files read back by the libraries that they are for; nothing half-written, nothing overwritten."""

from __future__ import annotations

import builtins
import csv
import json
from typing import TYPE_CHECKING, Any

import bitfleet as bf
import numpy as np
import pytest
from bitfleet.pipeline import export_codes
from bitfleet.pipeline.cli import app
from bitfleet.pipeline.export import CODES, export
from bitfleet.storage.codes import create_codes, finish_codes
from typer.testing import CliRunner

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(300, 16)).astype(np.float32)


@pytest.fixture(scope="module")
def model(vectors: np.ndarray) -> Any:
    return bf.ITQ(n_bits=12, n_iter=3, random_state=0).fit(vectors)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, vectors: np.ndarray) -> Path:
    """A data set, an evaluated run, and its codes in chunks smaller than the whole."""
    folder = tmp_path_factory.mktemp("exported")
    with bf.DatasetWriter(folder / "data.zarr", n_features=16, dtype="float32", chunk_rows=64) as writer:
        writer.append(vectors)
    trained = bf.train(folder / "data.zarr", folder / "run", "itq", n_bits=12, n_iter=3, block_rows=64)
    bf.encode(trained, folder / "data.zarr", folder / "codes.zarr")
    words = ["evaluate", *(str(folder / name) for name in ("run", "data.zarr", "data.zarr"))]
    assert CliRunner().invoke(app, [*words, "--metrics", "recall10@20"]).exit_code == 0
    return folder


def bits_of(codes: np.ndarray, n_bits: int = 12) -> np.ndarray:
    return np.unpackbits(codes, axis=1, bitorder="little", count=n_bits)


def test_numpy(folder: Path, tmp_path: Path) -> None:
    path = export(folder / "codes.zarr", tmp_path / "codes.npy")
    codes = bf.open_codes(folder / "codes.zarr")
    assert np.array_equal(np.load(path, allow_pickle=False), codes.rows(0, 300))
    assert np.array_equal(np.load(path, mmap_mode="r")[7], codes.rows(7, 8)[0])


def test_parquet(folder: Path, tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    codes = bf.open_codes(folder / "codes.zarr")
    table = pq.read_table(export(codes, tmp_path / "codes.parquet"))
    assert table["id"].to_pylist() == list(range(300))
    stored = np.frombuffer(b"".join(table["code"].to_pylist()), np.uint8).reshape(300, 2)
    assert np.array_equal(stored, codes.rows(0, 300))
    about = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    assert about["n_bits"] == "12"
    assert about["digest"] == codes.digest
    assert about["model_digest"] == codes.model_digest
    names = np.array([f"doc {n}" for n in range(300)])
    named = pq.read_table(export(codes, tmp_path / "named.parquet", ids=names))
    assert named["id"].to_pylist() == names.tolist()


def test_faiss_searches_the_file_as_we_do(model: Any, vectors: np.ndarray, tmp_path: Path) -> None:
    faiss = pytest.importorskip("faiss")
    codes = model.encode(vectors)
    index = faiss.read_index_binary(str(export(codes, tmp_path / "codes.faiss", n_bits=12)))
    distances, ids = index.search(codes[:9], 7)
    expected = bf.CodeIndex(codes, n_bits=12).search(codes[:9], 7)
    assert np.array_equal(distances, expected[0])
    differ = bits_of(codes)[ids] != bits_of(codes[:9])[:, None]
    assert np.array_equal(differ.sum(axis=2), distances)
    numbers = np.arange(300) * 1000 + 5
    mapped = faiss.read_index_binary(str(export(codes, tmp_path / "ids.faiss", n_bits=12, ids=numbers)))
    again, named = mapped.search(codes[:9], 7)
    assert np.array_equal(again, distances)
    assert np.array_equal(named, ids * 1000 + 5)
    clustered = bf.CodeIndex(codes, n_bits=12, n_clusters=4)
    inverted = faiss.read_index_binary(str(export(clustered, tmp_path / "ivf.faiss")))
    assert inverted.nlist == 4
    assert inverted.ntotal == 300
    with pytest.raises(bf.ConfigError, match="whole numbers as ids"):
        export(codes, tmp_path / "names.faiss", ids=numbers.astype(str))
    assert not (tmp_path / "names.faiss").exists()


def test_pgvector_lines_are_bits(
    model: Any, vectors: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = model.encode(vectors)
    monkeypatch.setattr(export_codes, "_BITS_AT_ONCE", 12 * 70)  # several pieces
    lines = export(codes, tmp_path / "codes.csv", n_bits=12).read_text().splitlines()
    expected = model.transform(vectors)
    assert [line.split(",")[0] for line in lines] == [str(n) for n in range(300)]
    assert [[int(bit) for bit in line.split(",")[1]] for line in lines] == expected.tolist()
    hostile = np.array(['a"b', "c,d", "e\nf", ""] + [str(n) for n in range(296)])
    path = export(codes, tmp_path / "named.csv", n_bits=12, ids=hostile)
    with path.open(newline="", encoding="utf-8") as file:
        assert [row[0] for row in csv.reader(file)] == hostile.tolist()


def test_what_is_exported_of_what(folder: Path, tmp_path: Path, vectors: np.ndarray) -> None:
    """An index in memory, places of ones, a stream; and what cannot be, with what to do."""
    places = np.argsort(np.random.default_rng(1).random((20, 40)), axis=1)[:, :3]
    bits = np.zeros((20, 40), np.uint8)
    np.put_along_axis(bits, places, 1, axis=1)
    for name, source in (
        ("places", places),
        ("index", bf.CodeIndex(places, n_bits=40, n_active=3)),
    ):
        found = np.load(export(source, tmp_path / f"{name}.npy", n_bits=40))
        assert np.array_equal(bits_of(found, 40), bits)
    (tmp_path / "in").mkdir()
    np.save(tmp_path / "in" / "a.npy", vectors)
    bf.stream(tmp_path / "in", tmp_path / "s", n_bits=8, n_anchors=40, first_rows=100, ended=True)
    streamed = bf.open_stream(tmp_path / "s")
    for name, source in (("path", tmp_path / "s"), ("opened", streamed)):
        assert np.array_equal(np.load(export(source, tmp_path / f"{name}.npy")), streamed.codes())
    for source, dest, said in (
        (folder / "run", "x.npy", "is of codes, got a run; encode a data set"),
        (folder / "data.zarr", "x.npy", "is of codes, got a dataset; encode it"),
        (folder / "codes.zarr", "x.md", "is of models, got codes"),
        (folder / "codes.zarr", "x.doc", r"expected one of numpy \(.npy\), .*got a name ending like 'x.doc'"),
        (folder / "codes.zarr", "missing/x.npy", "there is no folder"),
    ):
        with pytest.raises(bf.ConfigError, match=said):
            export(source, tmp_path / dest)
    for ids, said in (
        (np.zeros(300, int), "an id of its own for each code, got 0 300 times"),
        (np.arange(299), "ids as 300"),
        (np.arange(300.0), "got float64"),
    ):
        with pytest.raises(bf.ConfigError, match=said):
            export(folder / "codes.zarr", tmp_path / "x.npy", ids=ids)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(("x", "."))] == []


@pytest.mark.parametrize("format", sorted(CODES))
def test_nothing_is_overwritten_or_half_written(
    folder: Path, tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "there"
    path.write_text("mine")
    with pytest.raises(bf.DestinationExists, match="exists; choose another name"):
        export(folder / "codes.zarr", path, format)
    assert path.read_text() == "mine"
    packed = np.random.default_rng(0).integers(0, 256, (200, 2), np.uint8)
    digests = {"model_digest": "m", "source_digest": "s"}
    writer = create_codes(tmp_path / "c", n_rows=200, n_bits=16, n_active=None, chunk_rows=64, **digests)
    finish_codes(tmp_path / "c", [writer.write(at, packed[at : at + 64]) for at in range(0, 200, 64)])
    codes = bf.open_codes(tmp_path / "c")
    chunk = tmp_path / "c" / "codes" / "c" / "3" / "0"
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 1
    chunk.write_bytes(content)
    monkeypatch.setattr(export_codes, "_ROWS_AT_ONCE", 64)  # the first pieces are written
    with pytest.raises(bf.CorruptObject):
        export(codes, tmp_path / "new", format)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["c", "there"]


@pytest.mark.parametrize(("library", "name"), [("faiss", "a.faiss"), ("pyarrow", "a.parquet")])
def test_a_missing_library_is_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, name: str
) -> None:
    real = builtins.__import__

    def without(module: str, *rest: Any) -> Any:
        if module.split(".")[0] == library:
            raise ImportError(module)
        return real(module, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(bf.ConfigError, match=r"pip install 'bitfleet\["):
        export(folder / "codes.zarr", tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: bf.ITQ(n_bits=12, n_iter=3, random_state=0),
        lambda: bf.POSH(n_bits=40, n_active=5, n_epochs=1, random_state=0),
        lambda: bf.Sign(),
    ],
)
def test_an_encoder_is_arrays(make: Any, vectors: np.ndarray, tmp_path: Path) -> None:
    """With NumPy alone the arrays make the same codes."""
    est = make().fit(vectors)
    with np.load(export(est, tmp_path / "encoder.npz"), allow_pickle=False) as file:
        scores = (vectors - file["mean"]) @ file["projection"]
        if n_active := int(file["n_active"]):
            bits = np.zeros(scores.shape, np.uint8)
            np.put_along_axis(bits, np.argsort(-scores, axis=1, kind="stable")[:, :n_active], 1, axis=1)
        else:
            bits = (scores >= 0).astype(np.uint8)
    assert np.array_equal(bits, est.transform(vectors))


def test_an_encoder_that_is_no_linear_map_is_refused(vectors: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(bf.ConfigError, match="one linear map"):
        export(bf.SpectralHashing(n_bits=8).fit(vectors), tmp_path / "encoder.npz")
    assert list(tmp_path.iterdir()) == []


def test_a_card_tells_what_was_measured(
    folder: Path, tmp_path: Path, model: Any, vectors: np.ndarray
) -> None:
    results = json.loads((folder / "run" / "results.json").read_text("utf-8"))
    content = json.loads(export(folder / "run", tmp_path / "card.json").read_text("utf-8"))
    assert content["evaluation"]["metrics"] == results["metrics"]
    assert content["evaluation"]["n_queries"] == 300
    assert content["model"] == bf.load(folder / "run").digest
    assert content["training"]["seed"] == 0
    assert content["training"]["data_digest"] == bf.open_dataset(folder / "data.zarr").digest
    assert content["method"]["n_iter"] == 3
    text = export(folder / "run", tmp_path / "card.md").read_text("utf-8")
    (metric,) = results["metrics"]
    assert text.startswith("# ITQ, 12 bits\n")
    for told in (
        f"{100 * metric['value']:.2f} %",
        metric["definition"],
        content["model"],
        "2 bytes a vector",
    ):
        assert told in text
    assert "Not measured" in export(model, tmp_path / "bare.md").read_text("utf-8")
    measured = bf.evaluate(model, vectors, vectors[:20], "recall10@20")
    own = export(model, tmp_path / "own.md", results=measured).read_text("utf-8")
    assert f"{100 * float(measured['value'][0]):.2f} %" in own
    other = bf.LSH(n_bits=12, random_state=1).fit(vectors)
    with pytest.raises(bf.ConfigError, match="the results are of the model"):
        export(other, tmp_path / "false.md", results=measured)
    assert not (tmp_path / "false.md").exists()


def test_the_command_line(folder: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", np.arange(300) + 7)
    words = [
        "export",
        str(folder / "codes.zarr"),
        str(tmp_path / "c.csv"),
        "--ids",
        str(tmp_path / "ids.npy"),
    ]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["bytes"] == (tmp_path / "c.csv").stat().st_size
    assert (tmp_path / "c.csv").read_text().startswith("7,")
    assert CliRunner().invoke(app, words).exit_code == 2  # it exists
    (tmp_path / "ids.npy").write_text("1 2 3")
    refused = CliRunner().invoke(app, [*words[:2], str(tmp_path / "d.csv"), *words[3:]])
    assert refused.exit_code == 2
