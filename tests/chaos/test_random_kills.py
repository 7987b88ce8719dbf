"""A hundred kills at random, ten a test; `random_kills.py` makes them from the command line, too."""

from __future__ import annotations

import pytest
from random_kills import Killer, passed


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("start", range(0, 100, 10))
def test_every_kill_leaves_the_same_bits(tmp_path, start):
    with Killer(tmp_path) as killer:
        lines = [killer.kill(number) for number in range(start, start + 10)]
    assert [line for line in lines if not passed(line)] == []
