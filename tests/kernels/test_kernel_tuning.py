"""Tables of launch configurations: what is read, what is refused, what a tuning run keeps."""

import json
from dataclasses import replace

import pytest
import torch

from kernels import tune, tuning
from kernels.cases import SMALL_CASES
from kernels.tune import (
    Seen,
    agreeing,
    asks,
    best,
    checked_cases,
    share_of_candidates,
    write,
)
from kernels.tuning import TableError, Tunable, chosen, forced

ONE = Tunable(
    name="one", op="swiglu", default={"BLOCK": 8}, candidates=({"BLOCK": 8}, {"BLOCK": 16})
)


@pytest.fixture
def tables(tmp_path, monkeypatch):
    for module in (tuning, tune):
        monkeypatch.setattr(module, "CONFIGS", tmp_path)
    tuning.table.cache_clear()
    yield tmp_path
    tuning.table.cache_clear()


def test_a_class_that_no_table_names_gets_the_default(tables):
    assert chosen(ONE, "any", 90) == {"BLOCK": 8}


def test_a_table_serves_its_architecture_and_class_alone(tables):
    write("one", 90, {"wide": {"BLOCK": 16}})
    assert chosen(ONE, "wide", 90) == {"BLOCK": 16}
    assert chosen(ONE, "narrow", 90) == chosen(ONE, "wide", 100) == {"BLOCK": 8}


def test_a_table_of_other_names_is_refused(tables):
    write("one", 90, {"wide": {"WARPS": 4}})
    with pytest.raises(TableError, match=r"one\.json"):
        chosen(ONE, "wide", 90)


def test_writing_keeps_the_other_architectures(tables):
    write("one", 90, {"wide": {"BLOCK": 16}})
    write("one", 100, {"wide": {"BLOCK": 8}})
    assert json.loads((tables / "one.json").read_text()).keys() == {"90", "100"}


def test_a_forced_configuration_is_used_and_its_classes_are_told(tables):
    with forced(ONE, {"BLOCK": 16}) as asked:
        assert chosen(ONE, "wide") == {"BLOCK": 16}
    assert asked == {"wide"}
    assert chosen(ONE, "wide", 90) == {"BLOCK": 8}


def seen(block, seconds, rows=1, shapes="any"):
    return Seen(
        shapes=frozenset({shapes}), case=("case", rows), config={"BLOCK": block}, seconds=seconds
    )


def test_each_case_counts_alike_whatever_its_time():
    told = [seen(8, 1.0), seen(16, 2.0), seen(8, 120.0, 9), seen(16, 100.0, 9)]
    assert best(told) == {"any": {"BLOCK": 8}}


def test_classes_are_decided_apart():
    told = [seen(8, 1.0), seen(16, 2.0), *(seen(b, s, 9, "many") for b, s in ((8, 3), (16, 2)))]
    assert best(told) == {"any": {"BLOCK": 8}, "many": {"BLOCK": 16}}


def test_a_candidate_that_did_not_run_every_case_is_not_kept():
    assert best([seen(8, 2.0), seen(16, 1.0), seen(8, 2.0, 9)]) == {"any": {"BLOCK": 8}}


def test_candidates_that_do_not_agree_are_left_out(capsys):
    class Told:
        def __init__(self, passed):
            self.passed = passed
            self.line = "error 2.00e-01 of 1.0e-02"

    def outcomes():
        yield Told(passed=True)
        yield Told(passed=chosen(ONE, "any")["BLOCK"] == 8)

    assert agreeing(ONE, outcomes).candidates == ({"BLOCK": 8},)
    told = capsys.readouterr().out
    assert "'BLOCK': 8} agrees in 2 checks\n" in told
    assert "'BLOCK': 16} is left out: error 2.00e-01 of 1.0e-02\n" in told


def test_shares_of_candidates_hold_each_once():
    three = replace(ONE, candidates=tuple({"BLOCK": block} for block in (8, 16, 32)))
    shares = [share_of_candidates(three, f"{number}/2").candidates for number in (1, 2)]
    assert shares == [({"BLOCK": 8}, {"BLOCK": 32}), ({"BLOCK": 16},)]
    assert share_of_candidates(three, "1/1") == three


def test_candidates_that_could_not_be_checked_in_time_are_left_out(capsys):
    late = iter((False, True))
    assert agreeing(ONE, lambda: (), lambda: next(late)).candidates == ({"BLOCK": 8},)
    assert "'BLOCK': 16} is left out: out of time" in capsys.readouterr().out


def test_candidates_are_held_to_the_small_cases_and_the_smallest_release_that_ask_the_table():
    def run(x, limit, weight):
        return chosen(ONE, "any") if x.shape[-1] > asked_from else x

    asked_from = 0
    both = checked_cases(ONE, run, torch.device("cpu"))
    assert [case.name for case in both] == ["width 300", "width 2048"]
    asked_from = 1000
    assert [case.name for case in checked_cases(ONE, run, torch.device("cpu"))] == ["width 2048"]


@pytest.mark.parametrize("is_asked", [True, False])
def test_cases_that_do_not_depend_on_a_table_are_told_from_others(is_asked):
    case = swiglu_case()
    held = case.make(1, torch.float32, torch.device("cpu"))

    def run(*arguments):
        return chosen(ONE, "any") if is_asked else arguments

    assert asks(ONE, case, run, held) is is_asked


def swiglu_case():
    return next(case for case in SMALL_CASES if case.op == "swiglu")


def test_every_committed_table_is_one_of_a_kernel_and_holds_its_candidates():
    pytest.importorskip("triton", reason="triton is not installed")
    known = {one.name: one for one in tune.tunables()}
    for path in sorted(tuning.CONFIGS.glob("*.json")):
        candidates = known[path.stem].candidates
        for by_class in json.loads(path.read_text()).values():
            assert all(config in candidates for config in by_class.values()), path


def test_every_default_is_a_candidate_of_its_kernel():
    pytest.importorskip("triton", reason="triton is not installed")
    assert all(one.default in one.candidates for one in tune.tunables())
