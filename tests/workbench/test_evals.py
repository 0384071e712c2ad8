"""Judged answers in a store, and the commands that make and show them."""

import dataclasses

import pyarrow.parquet
import pytest

from experiments.records import EvalVerdict
from tests.fakes import records
from tests.fakes.answers import answer
from tests.fakes.command import workbench
from workbench.repeats import pooled

JUDGED = (
    answer("a"),
    answer("b", verdict=EvalVerdict.NO_ANSWER, extracted=None, rule=None, reason="no \u2028"),
    answer("c", verdict=EvalVerdict.CORRECT, rule_verdict=EvalVerdict.WRONG,
           llm_verdict=EvalVerdict.CORRECT, judge="llm:m", output_text="\U0001f600"),
)  # fmt: skip


def stored(folder):
    item = dataclasses.replace(records.record(), evals=JUDGED)
    return records.fill_store(folder, [item]), item


def test_answers_are_read_back_as_they_were(tmp_path):
    run, item = stored(tmp_path)
    assert run.trial(item.trial_id) == item
    rows = pyarrow.parquet.read_table(run.files(item.trial_id)["evals.parquet"]).to_pylist()
    assert [row["verdict"] for row in rows] == ["correct", "no_answer", "correct"]


def test_a_trial_without_questions_has_no_file_of_answers(tmp_path):
    item = records.record()
    run = records.fill_store(tmp_path, [item])
    assert "evals.parquet" not in run.files(item.trial_id)
    assert run.trial(item.trial_id).evals == ()


def test_a_trial_is_shown_with_what_was_not_right_and_how_judges_agree(tmp_path):
    run, item = stored(tmp_path)
    result = workbench("show", run.run_id, "--trial", item.trial_id, "--store", tmp_path)
    assert result.exit_code == 0, result.output
    for words in (
        "2 correct",
        "1 no answer",
        "not right: 1 of 1",
        "disagreements: 1 of 1",
        "kappa",
    ):
        assert words in result.stdout, words


def test_the_command_lists_the_sets():
    result = workbench("eval")
    assert result.exit_code == 0
    assert all(name in result.stdout for name in ("nano", "gsm8k", "human-eval"))


def test_repeats_that_ask_the_same_questions_keep_the_interval_of_the_questions(tmp_path):
    trials = records.fill_store(tmp_path, records.sweep_records()).trials()
    one = trials.iloc[[0, 0]].reset_index(drop=True)
    one["trial_id"], one["repeat"] = ["x", "y"], [0, 1]
    for name, values in {
        "": [0.5, 0.5],
        ".low": [0.3, 0.3],
        ".high": [0.7, 0.7],
        ".n": [20, 20],
    }.items():
        one[f"accuracy{name}"] = values
    one["accuracy.reason"] = None
    (row,) = pooled(one).to_dict("records")
    assert (row["accuracy"], row["accuracy.n"], row["repeats"]) == (0.5, 20, 2)
    assert (row["accuracy.low"], row["accuracy.high"]) == pytest.approx((0.3, 0.7))
