"""Results and reports: what they hold, that they are self-contained and escaped, and what damage does."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import shutil
import sys
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from bitfleet.pipeline import runs
from bitfleet.pipeline.config import build_method
from bitfleet.pipeline.describe import describe_codes
from bitfleet.pipeline.evaluate import evaluate
from bitfleet.pipeline.report import method_label, write_report
from bitfleet.pipeline.report_codes import correlation_picture
from bitfleet.pipeline.report_neighbors import recall_line
from bitfleet.pipeline.report_pictures import Curve, curve_svg, image_shape, png_uri
from bitfleet.pipeline.results import as_record, read_results, save_results
from bitfleet.storage.datasets import Dataset, DatasetWriter, open_dataset
from bitfleet.storage.errors import CorruptObject
from bitfleet.storage.events import open_events
from scipy.spatial.distance import cdist

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = '<script>alert("x")</script>'
VOID = {"meta", "img", "link", "br", "input", "hr"}


@dataclass(frozen=True)
class Place:
    """Two evaluated runs on the same small images."""

    itq: Path
    lsh: Path
    data: Dataset
    queries: Dataset


def images(path: Path, rows: slice) -> Dataset:
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 3, 140)
    pixels = rng.integers(0, 60, (140, 64)) + 60 * labels[:, None]
    writer = DatasetWriter(
        path, n_features=64, dtype="uint8", with_labels=True, attrs={"image_shape": [8, 8]}
    )
    writer.append(pixels[rows].astype(np.uint8), labels[rows])
    return writer.close(label_names=["ant", HOSTILE, "cat & dog"])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the data and two evaluated runs, to be copied."""
    folder = tmp_path_factory.mktemp("made")
    data = images(folder / "images.zarr", slice(0, 120))
    queries = images(folder / "queries.zarr", slice(120, 140))
    for name, params in (("itq", {"n_bits": 8, "n_iter": 6}), ("lsh", {"n_bits": 8})):
        run = folder / "runs" / name
        model = runs.start(data, run, build_method(name, params))
        result = evaluate(model, data, queries, "map@20,recall5@20")
        save_results(run, result, data=data, queries=queries, seconds=1.25)
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Place:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    data, queries = (open_dataset(tmp_path / name) for name in ("images.zarr", "queries.zarr"))
    return Place(tmp_path / "runs" / "itq", tmp_path / "runs" / "lsh", data, queries)


class Page(HTMLParser):
    """Reads a page strictly: tags must nest, and everything that could be fetched is noted."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.text += data + "\n"

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def shown(page: Page) -> list[dict[str, str | None]]:
    """The pictures of rows."""
    return [image for image in page.all("img") if image.get("class") != "bits"]


def test_a_report_shows_metrics_curves_gallery_and_provenance(place: Place) -> None:
    path = write_report(place.itq, beside=[place.lsh])
    assert path == place.itq / "report.html"
    page = Page(path.read_text(encoding="utf-8"))
    results = read_results(place.itq)
    assert results is not None
    for metric in results["metrics"]:
        assert metric["name"] in page.text
        assert metric["definition"] in page.text
        assert f"{100 * metric['value']:.1f} %" in page.text
    assert "ITQ, 8 bits" in page.text
    assert "LSH, 8 bits" in page.text
    assert len(page.all("svg")) == 4  # ITQ's curve (LSH learns in one step), two histograms, recall curves
    assert place.data.digest in page.text
    assert results["model"] in page.text
    assert "numpy" in page.text
    # three queries (one per label), two methods, ten items each, and the queries' own pictures
    assert len(page.all("li")) == 3 * 2 * 10
    assert len(shown(page)) == 3 * 2 * 10 + 3


def test_peak_memory_is_told(place: Place) -> None:
    """What the run's events and results say of it, and nothing of events that make no sense."""
    log = open_events(place.itq)
    (told,) = [event for event in log.read() if event["kind"] == "memory"]
    results = read_results(place.itq)
    assert results is not None
    for peak in (told["driver_peak_bytes"], results["peak_bytes"]):
        assert 2**25 < peak < 2**36  # of this process, in bytes
        assert f"{peak / 2**20:,.0f} MiB" in Page(write_report(place.itq).read_text("utf-8")).text
    assert told["worker_peak_bytes"] == []
    log.append("memory", driver_peak_bytes=10**400, worker_peak_bytes=[2**30, 3 * 2**30])
    page = Page(write_report(place.itq).read_text("utf-8"))
    assert "peak memory, training" not in page.text
    assert re.search(r"peak memory, largest of 2 workers\s+3,072 MiB", page.text)
    log.append("memory", driver_peak_bytes="much", worker_peak_bytes=[None])
    assert "workers" not in Page(write_report(place.itq).read_text("utf-8")).text


def test_what_a_sketch_has_lost_is_told(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(400, 6))
    method = build_method("ssbc", {"n_bits": 8, "n_anchors": 200, "sketch_size": 16})
    model = runs.start(X, tmp_path / "ssbc", method)
    certificate = model.state.scalars["certificate"]
    assert certificate > 0
    page = Page(write_report(tmp_path / "ssbc").read_text("utf-8"))
    assert re.search(rf"certificate\s+{certificate:.4%}", page.text)


def test_how_bits_are_used_is_shown_for_every_run(place: Place) -> None:
    page = Page(write_report(place.itq, beside=[place.lsh]).read_text(encoding="utf-8"))
    pictures = [image for image in page.all("img") if image.get("class") == "bits"]
    assert [image["alt"] for image in pictures] == [
        "correlations of the bits of ITQ, 8 bits",
        "correlations of the bits of LSH, 8 bits",
    ]
    for run in (place.itq, place.lsh):
        found = describe_codes(runs.load(run).encode(place.data.rows(0, 120)), n_bits=8)
        assert f"{found.entropy:,.0f} bits\n" in page.text
        assert re.search(r"bytes of a code\s+1\n", page.text)
        assert f"on in {found.busiest_bit:.1%}\n" in page.text
        assert f"{found.postings_per_query:,.0f} for 120 rows\n" in page.text
    shutil.rmtree(place.lsh / "model.zarr")
    page = Page(write_report(place.lsh).read_text(encoding="utf-8"))
    assert "The codes cannot be described" in page.text


def test_neighbours_and_others_are_told_apart(place: Place) -> None:
    """The averages that the page tells, against a plain loop over all pairs."""
    page = Page(write_report(place.itq).read_text(encoding="utf-8"))
    queries, rows = place.queries.rows(0, 20).astype(float), place.data.rows(0, 120).astype(float)
    true = np.argsort(cdist(queries, rows), axis=1, kind="stable")[:, :10]
    model = runs.load(place.itq)
    hamming = cdist(model.transform(queries), model.transform(rows), "cityblock")
    near = np.take_along_axis(hamming, true, axis=1)
    far = (hamming.sum() - near.sum()) / (hamming.size - near.size)
    said = (
        f"On average {near.mean():.1f} of 8 bits differ to one of the 10 nearest rows, {far:.1f} to another."
    )
    assert said in page.text
    assert "Recall among 120 rows" in page.text


def test_recall_curves_count_true_neighbours() -> None:
    distances = np.array([np.arange(32), np.arange(32)[::-1]])
    ranks = np.tile(np.arange(32), (2, 1))
    line = recall_line("x", distances, ranks)
    assert line.x == [1, 2, 4, 8, 16, 32]
    assert line.y == pytest.approx([5, 10, 20, 40, 50, 100])  # the first query's ten first, the other's last


def test_the_picture_of_bits_puts_alike_ones_together() -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, (500, 6), dtype=np.uint8)
    bits[:, 5], bits[:, 4], bits[:, 2] = bits[:, 0], 1 - bits[:, 1], 1
    picture = correlation_picture(bits).astype(int)
    np.testing.assert_array_equal(picture, picture.T)
    assert (np.diagonal(picture) == 0).all()
    assert (np.diagonal(picture, 1) == 0).sum() == 2  # the two that are equal, the two that are opposite
    constant = np.flatnonzero((picture == 255).sum(axis=0) == 5)
    assert len(constant) == 1
    expected = np.round(255 * (1 - abs(np.corrcoef(bits[:, 0], bits[:, 1])[0, 1])))
    assert expected in picture
    assert correlation_picture(rng.integers(0, 2, (50, 300))).shape == (256, 256)
    assert correlation_picture(rng.integers(0, 2, (50, 1))).shape == (1, 1)


def test_right_and_wrong_are_told_without_colour(place: Place) -> None:
    page = Page(write_report(place.itq).read_text(encoding="utf-8"))
    results = read_results(place.itq)
    assert results is not None
    labels, wanted = place.data.labels(), place.queries.labels()
    expected = [
        "correct" if labels[row] == wanted[shown["query"]] else "incorrect"
        for shown in results["shown"]
        for row in shown["retrieved"]
    ]
    spoken = [str(item["title"]).rsplit(", ", 1)[1] for item in page.all("li")]
    assert spoken == expected
    assert page.text.count("✓ ") - 1 == expected.count("correct")  # one more in the legend
    assert page.text.count("✗ ") - 1 == expected.count("incorrect")


def test_a_report_needs_nothing_but_itself(place: Place) -> None:
    text = write_report(place.itq, beside=[place.lsh]).read_text(encoding="utf-8")
    page = Page(text)
    for tag, attrs in page.tags:
        assert tag not in {"link", "iframe", "object", "embed", "base"}
        for name, value in attrs.items():
            assert not name.startswith("on")
            if name in {"src", "href", "xlink:href", "srcset", "data", "action"}:
                assert str(value).startswith(("data:image/png;base64,", "#")), (tag, name, value)
    assert not re.search(r"url\((?!#)|@import", text)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)  # one, and the only one that may run
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = (
        str(m["content"]) for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none';")
    assert policy.endswith(f"script-src 'sha256-{digest}'")
    assert "prefers-color-scheme: dark" in text
    assert any(meta.get("name") == "viewport" for meta in page.all("meta"))


def test_what_users_name_is_escaped(place: Place) -> None:
    text = write_report(place.itq).read_text(encoding="utf-8")
    assert text.count("<script") == 1  # the page's own
    assert HOSTILE in Page(text).text  # it is shown, as text
    assert "cat & dog" in Page(text).text


def test_without_matplotlib_there_is_a_report_without_curves(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [n for n in sys.modules if n.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    page = Page(write_report(place.itq).read_text(encoding="utf-8"))
    assert not page.all("svg")
    assert "bitfleet[report]" in page.text
    assert "loss" in page.text
    assert len(shown(page)) == 33  # pictures of rows need no matplotlib


def test_a_run_without_results_has_a_report(place: Place) -> None:
    (place.itq / "results.json").unlink()
    page = Page(write_report(place.itq).read_text(encoding="utf-8"))
    assert "Nothing has been evaluated yet" in page.text
    assert len(page.all("svg")) == 1
    assert not page.all("li")


def test_data_that_has_changed_is_not_shown(place: Place, tmp_path: Path) -> None:
    place.data.path.rename(tmp_path / "moved.zarr")
    page = Page(write_report(place.itq).read_text(encoding="utf-8"))
    assert "The rows cannot be shown" in page.text
    images(tmp_path / "images.zarr", slice(0, 100))
    page = Page(write_report(place.itq).read_text(encoding="utf-8"))
    assert "not the data set that was evaluated" in page.text


def test_rows_that_are_no_images_are_shown_by_label(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    written = []
    for name in ("a.zarr", "b.zarr"):
        writer = DatasetWriter(tmp_path / name, n_features=6, dtype="float32")
        writer.append(rng.normal(size=(40, 6)).astype(np.float32))
        written.append(writer.close())
    model = runs.start(written[0], tmp_path / "run", build_method("lsh", {"n_bits": 8}))
    result = evaluate(model, *written, "recall5@20")
    save_results(tmp_path / "run", result, data=written[0], queries=written[1])
    page = Page(write_report(tmp_path / "run").read_text(encoding="utf-8"))
    assert not shown(page)
    assert f"row {result['retrieved'].values[0, 0]}" in page.text
    assert "✓" not in page.text


def test_a_missing_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorruptObject, match="no run there"):
        write_report(tmp_path)


def test_results_are_read_back_and_damage_means_none(place: Place) -> None:
    results = read_results(place.lsh)
    assert results is not None
    assert results["seconds"] == 1.25
    assert results["paths"] == {"data": "../../images.zarr", "queries": "../../queries.zarr"}
    assert {m["name"] for m in results["metrics"]} == {"map@20", "recall5@20"}
    file = place.lsh / "results.json"
    good = file.read_bytes()
    for damaged in (good[:-30], good.replace(b'"seed": 0', b'"seed": 1'), b"", b"[]", b"{}"):
        file.write_bytes(damaged)
        assert read_results(place.lsh) is None
    file.unlink()
    assert read_results(place.lsh) is None
    file.write_bytes(good)
    assert read_results(place.lsh) == results


def test_a_record_is_json(place: Place) -> None:
    model = runs.load(place.lsh)
    record = as_record(evaluate(model, place.data, place.queries.rows(0, 1), "recall5@20"))
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert record["metrics"][0]["standard_error"] is None  # of one query there is none
    assert record["n_queries"] == 1


def test_png_is_read_back_by_another_reader() -> None:
    image = pytest.importorskip("matplotlib.image")
    pixels = np.random.default_rng(0).integers(0, 256, (5, 9), dtype=np.uint8)
    content = base64.b64decode(png_uri(pixels).partition(",")[2])
    read = image.imread(io.BytesIO(content), format="png")
    assert np.array_equal(np.round(read * 255).astype(np.uint8), pixels)


def test_a_curve_takes_the_colours_of_the_page() -> None:
    pytest.importorskip("matplotlib")
    curve = Curve("a & <b>", "objective", (1, 2, 3), (3.0, 2.0, 1.5))
    svg = curve_svg(curve)
    assert svg is not None
    assert svg == curve_svg(curve)
    assert "var(--accent)" in svg
    assert not re.search(r"(fill|stroke): #(?!00000)", svg)
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", svg)
    ids = re.findall(r' id="([^"]*)"', svg + str(curve_svg(Curve("other", "objective", (1, 2), (3.0, 2.0)))))
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    ("attrs", "n_features", "dtype", "expected"),
    [
        ({}, 64, "uint8", (8, 8)),
        ({}, 64, "float32", None),
        ({}, 60, "uint8", None),
        ({}, 49, "uint8", None),
        ({"image_shape": [4, 16]}, 64, "float32", (4, 16)),
        ({"image_shape": [4, 15]}, 64, "uint8", None),
        ({"image_shape": "8x8"}, 64, "float32", None),
    ],
)
def test_which_rows_are_images(
    tmp_path: Path, attrs: dict[str, Any], n_features: int, dtype: str, expected: tuple[int, int] | None
) -> None:
    writer = DatasetWriter(tmp_path / "d.zarr", n_features=n_features, dtype=dtype, attrs=attrs)
    writer.append(np.zeros((2, n_features), dtype))
    assert image_shape(writer.close()) == expected


def test_labels_of_methods() -> None:
    assert method_label({"name": "posh", "n_bits": 1024, "n_active": 64}) == "POSH, 1024 bits, 64 active"
    assert method_label({"name": "from elsewhere"}) == "from elsewhere"


def test_distortion_is_told_with_what_it_is_worth(tmp_path: Path) -> None:
    """δ beside T, M* and the bound; each run's warnings in words; nothing of methods that promise nothing."""
    X = np.random.default_rng(0).normal(size=(60, 30))
    for name in ("nibh", "nibh_cg", "itq"):
        params = {} if name == "itq" else {"n_iter": 3}
        runs.start(X, tmp_path / name, build_method(name, {"n_bits": 8, **params}))
    scalars = runs.resume(tmp_path / "nibh_cg").state.scalars
    page = Page(write_report(tmp_path / "nibh_cg", beside=[tmp_path / "nibh"]).read_text("utf-8"))
    for told in ("distortion", "distortion_constant", "least_bits", "distortion_bound"):
        assert f"{scalars[told]:.5g}" in page.text
    assert "Warning, NIBHCG, 8 bits: 8 bits are fewer than M* =" in page.text
    assert "Warning, NIBH, 8 bits: 8 bits are fewer than M* =" in page.text
    assert "M*" not in Page(write_report(tmp_path / "itq").read_text("utf-8")).text
    sentences = [
        json.loads(line) for line in (tmp_path / "nibh_cg" / "events.jsonl").read_text("utf-8").splitlines()
    ]
    assert any("M* =" in line.get("message", "") for line in sentences)
