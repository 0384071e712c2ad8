"""Intervals that say nothing are not spelled out, and stay stored."""

import math

import pytest

from tests.fakes import measured, records
from workbench.compare import compare
from workbench.spreads import TOO_FEW, says_nothing, too_wide


@pytest.mark.parametrize(
    ("low", "high", "wide"),
    [
        (1.0, 10.0, False),
        (1.0, 10.1, True),
        (0.758, 68_000.0, True),
        (0.5, math.inf, True),
        (-1.0, 5.0, False),
        (0.0, 0.2, False),
        (None, None, False),
        (math.nan, math.nan, False),
    ],
)
def test_an_interval_is_too_wide_beyond_a_factor_of_ten(low, high, wide):
    assert too_wide(low, high) == wide


def test_only_an_interval_over_repeats_says_nothing_when_it_is_wide():
    assert says_nothing(1.0, 20.0, 2)
    assert not says_nothing(1.0, 20.0, 1)
    assert not says_nothing(1.0, 2.0, 2)
    assert not says_nothing(None, None, 2)


def test_a_comparison_of_repeats_that_scatter_says_that_they_are_too_few(tmp_path):
    a = records.fill_store(tmp_path, measured.repeats(2, noise=0.01))
    items = [measured.trial(repeat=k, speed=speed) for k, speed in enumerate((0.5, 3.0))]
    found = compare(a, records.fill_store(tmp_path, items), metrics=["tok_s_user"])
    row = found.overall.iloc[0]
    assert row["high"] > 10 * row["low"]
    assert f"no difference shown ({TOO_FEW})" in row["sentence"]
    gate = found.gate(0.03, "tok_s_user")
    assert gate.rows[0].sentence.startswith(f"{TOO_FEW}; ")
    assert not gate.decided
