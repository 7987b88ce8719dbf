"""Following the run of a stranger: whatever its files hold, it is told or passed over."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import bitfleet as bf
import pytest
from bitfleet.pipeline.cli import app
from bitfleet.pipeline.errors import printable
from bitfleet.pipeline.recording import as_event
from bitfleet.storage.run import RunDirectory
from typer.testing import CliRunner

if TYPE_CHECKING:
    from pathlib import Path

ENDED = '{"kind": "job_started"}\n{"kind": "%s"%s}'
LINES = {
    "deep": "[" * 10_000,
    "long number": '{"kind": "round", "round": %s}' % ("9" * 5000),
    "large number": '{"kind": "round", "round": 1, "rounds": 1, "scalars": {"loss": 1%s}}' % ("0" * 400),
    "not finite": '{"kind": "stage", "stage": 1e400}\n{"kind": "stage", "stage": NaN}',
    "no stage": '{"kind": "stage"}',
    "nested stage": '{"kind": "stage", "stage": {"a": [1]}}',
    "commands": r'{"kind": "stage", "stage": "\u001b]0;mine\u0007\u001b[2J\u202e\ud800"}',
    "another round": '{"kind": "round", "round": "one", "rounds": "x", "scalars": [], "seconds": "y"}',
    "another start": '{"kind": "training", "method": "[/b]", "n_rows": null, "n_features": 1, "n_leaves": 1,'
    ' "resumed_from": [], "rounds": null}',
    "another end": '{"kind": "run_finished", "round": {}, "model": 7}',
}
# how a job has ended, and the exit code that it has for a shell
ENDS = {
    ENDED % ("job_failed", ', "error": {"a": 1}, "exit_code": "two"'): 1,
    ENDED % ("job_failed", ', "exit_code": null'): 1,
    ENDED % ("job_failed", ', "exit_code": 0'): 1,
    ENDED % ("job_failed", ', "exit_code": 256'): 1,
    ENDED % ("job_failed", ', "exit_code": 3'): 3,
    ENDED % ("job_interrupted", ', "reason": [1]'): 130,
    ENDED % ("job_finished", ""): 1,
    ENDED % ("job_finished", ', "result": [1, 2]'): 1,
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    RunDirectory.create(tmp_path / "run", {})
    return tmp_path / "run"


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_any_line_is_followed(run: Path, line: str) -> None:
    (run / "events.jsonl").write_text(f"{line}\n{ENDED % ('job_interrupted', '')}\n")
    for verb in ("status", "watch"):
        told = CliRunner().invoke(app, [verb, str(run), "--json"])
        assert told.exit_code == (0 if verb == "status" else 130), told.stderr
        assert json.loads(told.stdout.splitlines()[-1])["state"] == "interrupted"
        assert all(c.isprintable() or c == "\n" for c in told.stderr)


@pytest.mark.parametrize(("line", "code"), ENDS.items())
def test_any_end_has_an_exit_code(run: Path, line: str, code: int) -> None:
    (run / "events.jsonl").write_text(line + "\n")
    with pytest.raises(bf.JobFailed) as failed:
        bf.Job(run).result(timeout=5)
    assert failed.value.code == code


@pytest.mark.parametrize("table", [7, None, {"name": [1], "n_bits": [1]}, {"name": "lsh", "n_bits": "<b>"}])
def test_any_configuration_has_a_report(tmp_path: Path, table: object) -> None:
    RunDirectory.create(tmp_path / "run", {"method": table})
    told = CliRunner().invoke(app, ["report", str(tmp_path / "run")])
    assert told.exit_code == 0, told.stderr
    assert "<b>" not in (tmp_path / "run" / "report.html").read_text("utf-8")


def test_events_of_other_types_are_none_of_ours() -> None:
    ours = {"kind": "round", "time": "now", "round": 1, "rounds": None, "scalars": {"loss": 2}, "seconds": 1}
    assert as_event(ours) is not None
    for name, value in (("round", "1"), ("rounds", 1.5), ("scalars", [1]), ("seconds", None), ("new", 1)):
        assert as_event(ours | {name: value}) is None


def test_nothing_commands_a_terminal() -> None:
    assert printable("two\tcolumns\nα ü") == "two\tcolumns\nα ü"
    assert printable("\x1b[2J\x07\x9b\u202e\ud800") == r"\x1b[2J\x07\x9b\u202e\ud800"
