"""Budgets of compiled kernels: one file a family, no entry without its kernel."""

import pytest

from kernels import aot, budgets
from kernels.budgets import Resources

SMALL = Resources(registers=32, spill_bytes=0, shared_bytes=0)
LARGE = Resources(registers=64, spill_bytes=16, shared_bytes=0)


def test_budgets_are_read_as_they_were_written(tmp_path):
    found = {"norm": {"a sm_90": SMALL}, "topk": {"b sm_90": LARGE}}
    budgets.write(found, folder=tmp_path)
    assert budgets.read(folder=tmp_path) == found
    assert budgets.read({"topk"}, tmp_path) == {"topk": found["topk"]}
    assert list(budgets.faults(found, budgets.read(folder=tmp_path))) == []


def test_writing_forgets_what_is_not_compiled_any_more(tmp_path):
    budgets.write({"norm": {"a": SMALL, "b": SMALL}, "topk": {"c": SMALL}}, folder=tmp_path)
    budgets.write({"norm": {"a": LARGE}}, {"norm"}, tmp_path)
    assert budgets.read(folder=tmp_path) == {"norm": {"a": LARGE}, "topk": {"c": SMALL}}
    budgets.write({"norm": {"a": LARGE}}, folder=tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["norm.json"]


def test_excess_and_a_missing_budget_and_a_missing_kernel_are_faults():
    budget = {"norm": {"a": SMALL, "gone": SMALL}, "left": {"b": SMALL}}
    found = {"norm": {"a": LARGE}, "topk": {"new": SMALL}}
    told = dict(budgets.faults(found, budget))
    assert told["a"] == "registers 64 > 32; spill_bytes 16 > 0"
    assert told["new"] == "it has no budget"
    assert "nothing compiles it" in told["gone"]
    assert "left.json" in told["b"]


def test_every_family_has_a_budget_and_no_two_of_its_launches_share_a_name():
    names = [(one.family, one.name) for one in aot.every_launch()]
    assert len(names) == len(set(names))
    assert {family for family, _ in names} == budgets.read().keys()


def test_one_family_is_compiled_written_and_held(tmp_path, capsys):
    pytest.importorskip("triton", reason="triton is not installed")
    assert aot.main(["--family", "rotary"], tmp_path) == 1
    assert "it has no budget" in capsys.readouterr().out
    assert aot.main(["--family", "rotary", "--write"], tmp_path) == 0
    assert aot.main(["--family", "rotary"], tmp_path) == 0
    assert [file.name for file in tmp_path.iterdir()] == ["rotary.json"]
