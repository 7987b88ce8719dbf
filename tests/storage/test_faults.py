from __future__ import annotations

import ast

from bitfleet.storage.faults import NO_FAULTS, POINTS, Faults


class Recorder(Faults):
    def __init__(self) -> None:
        self.points: list[str] = []

    def reach(self, point: str) -> None:
        self.points.append(point)


def test_the_points_are_those_that_the_code_reaches(root):
    reached = [
        node.args[0].value
        for path in (root / "storage").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "reach"
    ]
    assert set(reached) == set(POINTS)


def test_a_commit_that_retires_a_round_visits_every_point_in_order(driver, tmp_path):
    checkpoints = driver.run(tmp_path / "run", 1)
    recorder = Recorder()
    state = driver.advance(checkpoints.latest())
    resumed = driver.RunDirectory.open(tmp_path / "run").checkpoints(driver.IDENTITY, faults=recorder)
    resumed.latest()
    resumed.commit(state)
    assert tuple(dict.fromkeys(recorder.points)) == POINTS


def test_no_faults_do_nothing():
    assert NO_FAULTS.reach("commit.before_list") is None
