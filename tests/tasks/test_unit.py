"""Rows over their lengths: for every size of number, and for none."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pytest
from bitfleet.tasks.unit import unit_rows


@pytest.mark.parametrize("scale", [1.0, 1e150, 1e300, 1e-150, 1e-300, 5e-324])
def test_lengths_are_one_whatever_the_size(scale: float) -> None:
    rows = np.array([[3.0, -4.0, 0.0], [1.0, 1.0, 1.0]]) * scale
    before = rows.copy()
    unit, nonzero = unit_rows(rows)
    with localcontext() as context:
        context.prec = 50
        for row, got in zip(rows, unit, strict=True):
            exact = [Decimal(float(v)) for v in row]
            length = sum((v * v for v in exact), Decimal(0)).sqrt()
            np.testing.assert_allclose(got, [float(v / length) for v in exact], rtol=1e-15)
    assert nonzero.all()
    np.testing.assert_array_equal(rows, before)


def test_zero_rows_stay_zero_and_bad_rows_stay_bad() -> None:
    rows = np.array([[0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0], [0.0, -2.0]])
    unit, nonzero = unit_rows(rows)
    assert nonzero.tolist() == [False, True, True, True]
    np.testing.assert_array_equal(unit[[0, 3]], [[0, 0], [0, -1]])
    assert np.isnan(unit[1:3]).any(axis=1).all()
    assert unit_rows(np.zeros((0, 4)))[0].shape == (0, 4)
