"""Packed sparse codes searched by real queries, against distances computed one by one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import bitfleet as bf
import numpy as np
import pytest
from bitfleet.pipeline.cli import app
from bitfleet.storage import models
from bitfleet.tasks.kernels import active_scan, ranking
from typer.testing import CliRunner

if TYPE_CHECKING:
    from pathlib import Path

RNG = np.random.default_rng(8)
X = RNG.normal(size=(900, 12)) * np.linspace(2, 0.3, 12) + 0.2
X[50:60] = X[5]  # equal rows: ties
Q = np.concatenate([RNG.normal(size=(40, 12)), X[5:6]])


@pytest.fixture(scope="module")
def coder() -> bf.SparseCoding:
    return bf.SparseCoding(n_bits=64, n_active=6, random_state=0).fit(X)


@pytest.fixture(scope="module")
def pursuit() -> bf.Model:
    hasher = bf.PursuitHash(n_bits=64, n_active=6, n_components=8, random_state=0).fit(X)
    return bf.fit_decoder(hasher, X)


def brute_force(index: bf.ActiveIndex, model: Any, metric: str, lengths: bool) -> np.ndarray:
    """All distances from decoded vectors, without the index's tables."""
    model = getattr(model, "model_", model)
    decoder = model.needed_decoder()
    codes = model.encode(X)
    if metric == "cosine":
        unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (Q, decoder.decode(codes))]
        return 2 - 2 * unit[0] @ unit[1].T
    inner, decoded = decoder.coordinates(Q), decoder.reconstruct(codes)
    if lengths:
        stored = 2.0 ** ((index.rows[:, -1].astype(float) - 128) / 16) * index._distances._unit
        true = np.linalg.norm(decoder.coordinates(X), axis=1)
        assert np.abs(stored / true - 1).max() < 2 ** (1 / 32) - 1 + 1e-9
        decoded *= (stored / np.linalg.norm(decoded, axis=1))[:, None]
    return ((inner[:, None] - decoded) ** 2).sum(axis=2)


@pytest.mark.parametrize(
    ("metric", "lengths"), [("euclidean", True), ("euclidean", False), ("cosine", False)]
)
@pytest.mark.parametrize("name", ["coder", "pursuit"])
def test_distances_and_ids_are_those_of_brute_force(
    name: str, metric: str, lengths: bool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = request.getfixturevalue(name)
    index = bf.ActiveIndex(model, metric=metric, lengths=lengths).add(X)
    distances, ids = index.search(Q, 25)
    expected = brute_force(index, model, metric, lengths)
    assert index.n_bytes == ranking.ranked_width(64, 6) + lengths
    np.testing.assert_allclose(np.sort(expected, axis=1)[:, :25], distances, atol=2e-5)
    np.testing.assert_allclose(np.take_along_axis(expected, ids, axis=1), distances, atol=2e-5)
    assert (np.diff(distances, axis=1) >= 0).all()
    tied = np.diff(distances, axis=1) == 0
    assert (np.diff(ids, axis=1)[tied] > 0).all()
    assert ids[-1, :11].tolist() != sorted(ids[-1, :11].tolist(), reverse=True)
    assert {5, *range(50, 60)} <= set(ids[-1].tolist())

    lean = bf.ActiveIndex(model, metric=metric, lengths=lengths, keep_norms=False)
    kept = bf.ActiveIndex(model, metric=metric, lengths=lengths, keep_lists=True)
    for other in (lean, kept):
        for at in range(0, len(X), 13):
            other.add(X[at : at + 13])
        np.testing.assert_array_equal(other.rows, index.rows)  # bytes do not depend on blocks

    def same(other: bf.ActiveIndex, at_once: int) -> None:
        found = [other.search(Q[at : at + at_once], 25) for at in range(0, len(Q), at_once)]
        for part, expected in zip(zip(*found, strict=True), (distances, ids), strict=True):
            np.testing.assert_array_equal(np.concatenate(part), expected)

    for other in (index, lean, kept):
        for at_once in (1, 3, len(Q)):
            same(other, at_once)
    for module in (active_scan, ranking):
        monkeypatch.setattr(module, "loops", lambda: None)
    same(lean, len(Q))
    same(kept, 3)


def test_lists_take_the_bytes_that_are_said(coder: bf.SparseCoding, tmp_path: Path) -> None:
    index = bf.ActiveIndex(coder, keep_lists=True).add(X)
    path = index.save(tmp_path / "index")
    opened = bf.ActiveIndex.open(path, keep_lists=True)
    for each in (index, opened):
        assert each._lists is not None
        places = bf.unpack_active(each.rows[:, :-1], 64, 6)
        np.testing.assert_array_equal(each._lists.whole(), places)
        assert each._lists.whole().nbytes == 6 * len(X)
    assert bf.ActiveIndex.open(path)._lists is None
    decoder = index._distances.decoder
    for n_bits, dtype in ((257, np.uint16), (65_536, np.uint16), (65_537, np.uint32)):
        large = replace(index._distances, decoder=replace(decoder, matrix=np.zeros((n_bits, 12))))
        assert large.lists(np.array([[0, n_bits - 1]])).tolist() == [[0, n_bits - 1]]
        assert large.lists(np.array([[0, 1]])).dtype == dtype


def test_one_query_among_many_rows(coder: bf.SparseCoding, monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates that are thinned out, and several blocks of rows."""
    many = np.tile(X, (4, 1))
    expected = bf.ActiveIndex(coder).add(many).search(Q, 30)
    monkeypatch.setattr(active_scan, "_ROWS_AT_ONCE", 1000)
    monkeypatch.setattr(active_scan, "_SPARE", 10)
    for keep_lists in (False, True):
        index = bf.ActiveIndex(coder, keep_lists=keep_lists).add(many)
        for q in range(len(Q)):
            distances, ids = index.search(Q[q : q + 1], 30)
            np.testing.assert_array_equal(distances[0], expected[0][q])
            np.testing.assert_array_equal(ids[0], expected[1][q])


def test_long_lists_and_everything(coder: bf.SparseCoding) -> None:
    many = np.tile(X, (3, 1))
    index = bf.ActiveIndex(coder).add(many)
    distances, ids = index.search(Q, 5000)
    assert ids.shape == (len(Q), len(many))
    np.testing.assert_array_equal(np.sort(ids, axis=1)[0], np.arange(len(many)))
    few = index.search(Q, 7)
    np.testing.assert_array_equal(few[1], ids[:, :7])
    np.testing.assert_array_equal(few[0], distances[:, :7])
    assert bf.ActiveIndex(coder).search(Q, 3)[1].shape == (len(Q), 0)
    assert index.search(Q[:0], 3)[1].shape == (0, 3)


def test_rescoring_puts_the_true_order(coder: bf.SparseCoding) -> None:
    distances, ids = bf.ActiveIndex(coder).add(X).search(Q, 5, rescore=X, oversample=180)
    true = ((Q[:, None] - X) ** 2).sum(axis=2)
    order = np.argsort(true, axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(ids, order)
    np.testing.assert_allclose(distances, np.take_along_axis(true, order, axis=1))


def test_zero_rows_and_zero_queries(coder: bf.SparseCoding) -> None:
    mean = coder.mean_[None]
    index = bf.ActiveIndex(coder).add(np.concatenate([mean, X[:3]]))
    assert index.rows[0, -1] == 0
    distances, ids = index.search(mean, 4)
    assert ids[0, 0] == 0
    assert distances[0, 0] == 0
    cosine = bf.ActiveIndex(coder, metric="cosine").add(X[:3])
    assert np.isfinite(cosine.search(np.zeros((1, 12)), 3)[0]).all()


def test_distances_that_overflow_are_refused(coder: bf.SparseCoding, pursuit: bf.Model) -> None:
    for model in (coder, pursuit):
        index = bf.ActiveIndex(model).add(X)
        for size in (1e300, 1.7e308):
            huge = np.concatenate([Q[:5], np.full((1, 12), size)])
            for queries in (huge, huge[-1:]):
                with pytest.raises(bf.ConfigError, match="overflow float64; rescale the vectors"):
                    index.search(queries, 3)
        assert np.isfinite(index.search(np.full((1, 12), 1e150), 3)[0]).all()
        assert np.isfinite(index.search(np.full((1, 12), 1e-300), 3)[0]).all()
    index = bf.ActiveIndex(coder, metric="cosine").add(X)  # only directions count
    np.testing.assert_array_equal(index.search(np.ldexp(Q, 900), 9)[1], index.search(Q, 9)[1])


def test_rows_that_are_long_or_short_beyond_measure(coder: bf.SparseCoding) -> None:
    """Lengths end eight octaves from the unit; nothing overflows."""
    rows = np.concatenate([X[:3], np.full((1, 12), 1e300), np.full((1, 12), 1e-300) + coder.mean_])
    index = bf.ActiveIndex(coder).add(rows)
    assert index.rows[3, -1] == 255
    distances = index.search(Q, 5)[0]
    assert np.isfinite(distances).all()


def test_saved_and_opened(coder: bf.SparseCoding, pursuit: bf.Model, tmp_path: Path) -> None:
    for model in (coder, pursuit):
        index = bf.ActiveIndex(model).add(X)
        path = index.save(tmp_path / type(model).__name__)
        for opened in (bf.ActiveIndex.open(path), bf.ActiveIndex.open(path, model, keep_norms=False)):
            np.testing.assert_array_equal(opened.rows, index.rows)
            np.testing.assert_array_equal(opened.search(Q, 9)[0], index.search(Q, 9)[0])
        np.testing.assert_array_equal(opened.add(X[:9]).rows[-9:], index.rows[:9])
        with pytest.raises(bf.ConfigError, match="open it with model="):
            bf.ActiveIndex.open(path).add(X)
    with pytest.raises(bf.ConfigError, match="was made by the model"):
        bf.ActiveIndex.open(path, coder)


def test_hostile_files_are_refused(coder: bf.SparseCoding, tmp_path: Path) -> None:
    index = bf.ActiveIndex(coder).add(X[:40])
    header, arrays = models.load_model(index.save(tmp_path / "good"))
    damaged = arrays["rows"].copy()
    damaged[7, :-1] = 255
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {"rows": damaged}),
        ({}, {"rows": arrays["rows"][:, :-1].copy()}),
        ({}, {"rows": arrays["rows"].astype(np.int32)}),
        ({}, {"matrix": arrays["matrix"][:, :-1].copy()}),
        ({"n_active": 20}, {}),
        ({"n_active": "6"}, {}),
        ({"metric": "dot"}, {}),
        ({"lengths": False}, {}),
    ]
    for number, (other, replaced) in enumerate(cases):
        path = tmp_path / f"bad{number}"
        models.save_model(path, {**header, **other}, {**arrays, **replaced})
        with pytest.raises((bf.CorruptObject, bf.ConfigError)):
            bf.ActiveIndex.open(path)
    for name, message in (("mean", "its mean holds"), ("matrix", "its matrix holds")):
        models.save_model(
            tmp_path / f"nan {name}", header, {**arrays, name: np.full_like(arrays[name], np.nan)}
        )
        with pytest.raises(bf.CorruptObject, match=message):
            bf.ActiveIndex.open(tmp_path / f"nan {name}")
    models.save_model(tmp_path / "newer", {**header, "format_version": 2}, arrays)
    with pytest.raises(bf.ConfigError, match="expected an index in format 1"):
        bf.ActiveIndex.open(tmp_path / "newer")
    chunk = next(
        each
        for each in sorted((tmp_path / "good" / "rows").rglob("*"))
        if each.is_file() and each.name != "zarr.json"
    )
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"?")
    with pytest.raises(bf.CorruptObject):
        bf.ActiveIndex.open(tmp_path / "good")


def test_packing_takes_every_kind_of_codes(coder: bf.SparseCoding, tmp_path: Path) -> None:
    places = bf.unpack_active(bf.ActiveIndex(coder, lengths=False).add(X).rows, 64, 6)
    packed = bf.pack_active(places, 64)
    np.testing.assert_array_equal(bf.pack_active(coder.encode(X), 64, 6), packed)
    np.testing.assert_array_equal(bf.pack_active(places[:, ::-1].astype(np.int64), 64), packed)
    np.save(tmp_path / "x.npy", X)
    bf.ingest(tmp_path / "x.npy", tmp_path / "x.zarr")
    coder.save(tmp_path / "model.zarr")
    bf.encode(bf.load(tmp_path / "model.zarr"), tmp_path / "x.zarr", tmp_path / "codes.zarr")
    np.testing.assert_array_equal(bf.pack_active(tmp_path / "codes.zarr"), packed)
    with pytest.raises(bf.ConfigError, match="row 0 is no set of 6 out of 64"):
        bf.unpack_active(np.full((1, 4), 255, np.uint8), 64, 6)
    with pytest.raises(bf.ConfigError, match="say how many ones"):
        bf.pack_active(coder.encode(X), 64)


def test_files_on_the_command_line(coder: bf.SparseCoding, tmp_path: Path) -> None:
    for name, rows in (("x", X), ("q", Q)):
        np.save(tmp_path / f"{name}.npy", rows)
        bf.ingest(tmp_path / f"{name}.npy", tmp_path / f"{name}.zarr")
    coder.save(tmp_path / "model.zarr")
    run = CliRunner().invoke
    made = run(app, ["index", *(str(tmp_path / n) for n in ("model.zarr", "x.zarr", "i.zarr")), "--json"])
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout) | {"index": ""} == {
        "index": "", "rows": len(X), "bytes_a_row": 5, "metric": "euclidean"
    }  # fmt: skip
    searched = [str(tmp_path / "i.zarr"), str(tmp_path / "q.zarr"), "--k", "4", "--json"]
    found = run(app, ["search", *searched, "--rescore", str(tmp_path / "x.zarr"), "--oversample", "3"])
    assert found.exit_code == 0, found.output
    expected = bf.ActiveIndex(coder).add(tmp_path / "x.zarr").search(Q, 4, rescore=X, oversample=3)
    assert json.loads(found.stdout)["ids"] == expected[1].tolist()
    with pytest.raises(bf.ConfigError, match="an index is searched in this process alone"):
        bf.search(tmp_path / "i.zarr", Q, 3, scheduler="local")
    with pytest.raises(bf.ConfigError, match="rows of 12 features, got 5"):
        bf.ActiveIndex(coder).add(X[:, :5])


def test_what_cannot_be_searched_is_refused(coder: bf.SparseCoding) -> None:
    index = bf.ActiveIndex(coder).add(X)
    for queries, message in (
        (Q[:, :5], r"shape \(q, 12\)"),
        (np.full((1, 12), np.nan), "finite queries"),
        (Q.astype(str), "queries of numbers"),
    ):
        with pytest.raises(bf.ConfigError, match=message):
            index.search(queries, 3)
    with pytest.raises(bf.ConfigError, match="cosine takes no lengths"):
        bf.ActiveIndex(coder, metric="cosine", lengths=True)
    with pytest.raises(bf.ConfigError, match="expected metric"):
        bf.ActiveIndex(coder, metric="dot")
    with pytest.raises(bf.ConfigError, match="dense codes take real queries"):
        bf.ActiveIndex(bf.LSH(n_bits=8, random_state=0).fit(X))
    with pytest.raises(bf.ConfigError, match="fit one"):
        bf.ActiveIndex(bf.PursuitHash(n_bits=64, n_active=6, n_epochs=1, random_state=0).fit(X))
