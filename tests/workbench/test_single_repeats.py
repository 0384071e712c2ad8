"""Arms of one repeat: values and their ratio are told, on one basis, and no verdict."""

import dataclasses

import pytest

import workbench as wb
from tests.fakes import measured, records
from workbench import effects
from workbench.errors import UsageError

RATE = "output_tok_s_device"


def overall(a, b, metric=RATE):
    found = wb.compare(a, b, metrics=[metric]).overall
    return found.iloc[0]


def without_requests(items):
    return [dataclasses.replace(item, requests=()) for item in items]


@pytest.mark.parametrize("several", [0, 1])
def test_a_ratio_of_several_repeats_and_one_lies_inside_its_interval(tmp_path, several):
    many = [measured.trial(repeat=k, speed=speed) for k, speed in enumerate((1, 4, 5, 6))]
    sides = [[measured.trial(speed=5.0, seed=3)], [measured.trial(speed=5.0, seed=3)]]
    sides[several] = many  # whose first repeat is far from all others
    found = overall(*(records.fill_store(tmp_path, items) for items in sides))
    assert found["low"] < found["ratio"] < found["high"]
    assert found["basis"] == "within-run"
    assert found["verdict"] == "not judged"
    assert found["ratio"] == pytest.approx(found["b"] / found["a"])


def test_single_repeats_without_an_interval_tell_both_values_and_their_ratio(tmp_path):
    a, b = (
        records.fill_store(tmp_path, without_requests([measured.trial(speed=speed)]))
        for speed in (1.0, 2.0)
    )
    found = overall(a, b)
    assert found["ratio"] == pytest.approx(found["b"] / found["a"])
    assert found["low"] is None
    assert found["verdict"] == "not judged"
    assert "one repeat" in found["reason"]
    assert found["sentence"].startswith("not judged: +")


def test_no_more_requests_are_read_than_single_repeats_are_worth(tmp_path, monkeypatch):
    monkeypatch.setattr(effects, "MOST_READ", 2)
    a, b = (
        records.fill_store(
            tmp_path,
            [measured.trial(speed=speed, seed=c, batch_size=c) for c in (1, 2, 4)],
        )
        for speed in (1.0, 2.0)
    )
    found = wb.compare(a, b, metrics=[RATE])
    assert found.points["low"].notna().sum() == 1
    assert found.points["ratio"].tolist() == pytest.approx([2.0] * 3, rel=0.1)
    whole = found.overall.iloc[0]
    assert (whole["points"], whole["low"]) == (3, None)
    assert whole["ratio"] == pytest.approx(2.0, rel=0.1)
    assert whole["verdict"] == "not judged"


def test_what_others_call_a_setting_is_named_as_it_is_called_here(tmp_path):
    run = records.fill_store(tmp_path, [measured.trial(data_parallel_size=2)])
    with pytest.raises(UsageError, match="called data_parallel_size here"):
        wb.compare(wb.select(run, dp=2), run)
    with pytest.raises(UsageError, match=r"The settings are .*data_parallel_size"):
        wb.compare(wb.select(run, qqqq=2), run)
