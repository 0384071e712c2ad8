"""Evals as part of a plan: what is refused before it runs, and what a trial leaves."""

import json

import pytest

from engine.errors import ConfigError
from experiments.errors import PlanError, WorkloadError
from experiments.metric_rows_evals import EVALS
from experiments.observe import NoObserver
from experiments.plan import load_plan
from experiments.records import ChunkKind, EvalVerdict, TrialState
from experiments.sweep import planned, run
from experiments.targets.factory import target_factory
from experiments.targets.http_answers import Usage, whole
from experiments.targets.null_server import Answer
from tests.experiments.test_http_sweep import LIMITS
from tests.fakes.openai_server import TOKENIZER, Say, acts, serving

NANO = {"engine": {"model": "nano", "num_threads": 1}}
ROWS = [
    {"id": f"q{i}", "question": f"What is {i} + 1?", "answer": i + 1, "kind": "number"}
    for i in range(6)
]


@pytest.fixture
def own_set(tmp_path):
    path = tmp_path / "own.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    return path


def eval_plan(workload=None, **fields):
    spec = {"name": "w", "kind": "eval", "set": "nano", "output_tokens": 48, **(workload or {})}
    load = {"kind": "closed", "batch_size": 2}
    return load_plan({"name": "t", "workloads": [spec], "load": load, **fields})


def http_fields(url):
    http = {"url": url, "model": "null", "tokenizer": TOKENIZER}
    return {"target": "http", "http": http, "gates": LIMITS}


def records_of(plan):
    return list(run(plan, target_factory(plan), observer=NoObserver()))


def ids(plan):
    return [trial.trial_id for trial in planned(plan, target_factory(plan))]


@pytest.mark.parametrize(
    ("workload", "fields", "words"),
    [
        ({}, {"target": "simulated"}, "answers no question"),
        ({"samples": 2}, NANO, "which are all alike"),
        ({"set": "nono"}, NANO, "no set 'nono'"),
        ({"set": "nowhere.jsonl"}, NANO, "no such file"),
        ({"max_questions": 1}, NANO, "leave nothing to measure"),
        ({"output_tokens": 5000}, NANO, "context holds"),
        ({}, {**NANO, "load": {"kind": "batch", "batch_size": 2}}, "one by one"),
        ({}, {**NANO, "load": {"kind": "sessions", "concurrency": 1, "turns": 2}}, "one by one"),
        ({"thinking": True}, http_fields("http://127.0.0.1:9"), "in no chat form that has it"),
    ],
)
def test_what_no_eval_can_be_is_refused_before_anything_runs(workload, fields, words):
    with pytest.raises((PlanError, WorkloadError), match=words):
        ids(eval_plan(workload, **fields))


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        ({"pass_k": 2}, "more than 1 samples"),
        ({"exact_output_length": True}, "exact_output_length"),
        ({"judge": "me"}, "judge"),
    ],
)
def test_fields_that_contradict_are_no_plan(workload, words):
    with pytest.raises(PlanError, match=words):
        eval_plan(workload)


def test_a_judge_that_is_not_set_up_is_refused_before_anything_runs(monkeypatch):
    monkeypatch.delenv("EVAL_JUDGE_MODEL", raising=False)
    monkeypatch.setenv("EVAL_JUDGE_BASE_URL", "http://127.0.0.1:9/v1")
    with pytest.raises(ConfigError, match="is not set") as caught:
        ids(eval_plan({"judge": "llm"}, **NANO))
    assert caught.value.where == "EVAL_JUDGE_MODEL"


def test_a_set_counts_by_its_content_not_by_its_place(own_set, tmp_path):
    there = tmp_path / "elsewhere.jsonl"
    there.write_text(own_set.read_text())
    first = ids(eval_plan({"set": str(own_set)}, **NANO))
    assert ids(eval_plan({"set": str(there)}, **NANO)) == first
    there.write_text(own_set.read_text().replace('"answer": 3', '"answer": 4'))
    assert ids(eval_plan({"set": str(there)}, **NANO)) != first


def test_every_question_is_asked_and_drafting_changes_no_answer():
    plan = eval_plan({"max_questions": 8}, **NANO, axes=[{"product": {"draft_length": [0, 5]}}])
    records = records_of(plan)
    assert [r.state for r in records] == [TrialState.OK] * 2, [r.reason for r in records]
    plain, drafted = ({a.question_id: a.output_text for a in r.evals} for r in records)
    assert plain == drafted
    assert len(plain) == 8
    for record in records:
        measured = [r for r in record.requests if not r.warm_up]
        assert sorted(r.index for r in measured) == list(range(8))
        assert all(r.output_text is None for r in record.requests)
        found = record.metrics
        right = sum(a.verdict is EvalVerdict.CORRECT for a in record.evals)
        assert (found["accuracy"].value, found["accuracy"].n) == (right / 8, 8)
        assert found["accuracy"].low < found["accuracy"].high
        assert found["output_tok_s"].value > 0
        assert record.point.workload["prompt_form"] == "chat"
    assert records[0].metrics["accuracy"] == records[1].metrics["accuracy"]


def test_the_warm_up_asks_no_question_of_the_set():
    plan = eval_plan({"max_questions": 4}, **NANO)
    (trial,) = planned(plan, target_factory(plan))
    asked = {trial.workload.item(index, "s").prompt_token_ids for index in range(8)}
    warm = {trial.workload.warm_up_item(index, "s").prompt_token_ids for index in range(8)}
    assert len(asked) == len(warm) == 4
    assert not asked & warm


def test_samples_are_drawn_apart_and_again_alike():
    plan = eval_plan({"max_questions": 2, "samples": 3, "temperature": 1.0}, **NANO)
    once, again = records_of(plan)[0], records_of(plan)[0]
    assert [a.output_text for a in once.evals] == [a.output_text for a in again.evals]
    assert [(a.question_id, a.sample) for a in once.evals][2:4] == [
        (once.evals[0].question_id, 1),
        (once.evals[1].question_id, 1),
    ]
    assert once.metrics["pass_at_k"].n == 2
    assert len({a.output_text for a in once.evals}) > 2


def test_thinking_is_asked_for_in_the_chat_form():
    plan = eval_plan({"max_questions": 2, "thinking": True}, **NANO)
    (trial,) = planned(plan, target_factory(plan))
    target = target_factory(plan)()
    end = target.encode(trial.point.engine, "<\uff5cAssistant\uff5c><think>")
    assert all(prompt[-2:] == tuple(end) for prompt in trial.workload.prompts)
    assert trial.workload.think_end_id is not None


def test_a_trial_that_is_no_eval_says_so_of_its_accuracy():
    spec = {"name": "s", "kind": "synthetic", "prompt_tokens": 8, "output_tokens": 4}
    plan = load_plan({"name": "t", "target": "simulated", "workloads": [spec]})
    (record,) = records_of(plan)
    assert record.evals == ()
    assert {record.metrics[row[0]].reason for row in EVALS} == {"the workload is no eval"}


def says(ask):
    """Right for even questions; the reasoning names a wrong number."""
    question = ask.body["messages"][0]["content"]
    asked = int(question.split()[2])
    number = asked + 1 if asked % 2 == 0 else 99
    thought = Say(0.002, 2, kind=ChunkKind.REASONING, text="maybe 1234567")
    return Answer(acts=acts(ask.api, [thought, Say(0.004, 4, text=f"The answer is {number}")]))


def test_a_server_is_asked_in_text_and_its_reasoning_is_not_judged(own_set):
    with serving(says) as server:
        plan = eval_plan({"set": str(own_set)}, **http_fields(server.url), clients=2)
        (record,) = records_of(plan)
        questions = {note.ask.body["messages"][0]["content"] for note in server.notes}
    assert record.state is TrialState.OK, record.reason
    assert [a.question_id for a in record.evals] == [row["id"] for row in ROWS]
    assert record.metrics["accuracy"].value == 0.5
    assert {a.output_text for a in record.evals} >= {"The answer is 1", "The answer is 99"}
    assert (
        'What is 0 + 1?\n\nEnd with one line "The answer is N", where N is a number.' in questions
    )
    assert not any("\uff5c" in question for question in questions)
    assert record.point.workload["prompt_form"] == "server chat"


def test_an_eval_that_lost_a_question_is_invalid_whatever_the_rest(own_set):
    def loses_one(ask):
        failed = "What is 3 + 1?" in ask.body["messages"][0]["content"]
        return Answer(status=500, body=b"out of luck") if failed else says(ask)

    with serving(loses_one) as server:
        fields = http_fields(server.url)
        fields["gates"] = {**LIMITS, "error_rate": None}
        (record,) = records_of(eval_plan({"set": str(own_set)}, **fields))
    assert record.state is TrialState.INVALID
    assert "an eval is whole or nothing" in record.reason
    assert record.metrics["eval_unanswered"].value == 1
    assert record.metrics["accuracy"].n == 5


def test_an_eval_that_runs_out_of_time_is_invalid_and_says_which_limit_to_raise(own_set):
    def slow(ask):
        return Answer(acts=acts(ask.api, [Say(0.3, 4, text="The answer is 1")]))

    with serving(slow) as server:
        spec = {"set": str(own_set), "limit_s": 0.4}
        (record,) = records_of(eval_plan(spec, **http_fields(server.url)))
    assert record.state is TrialState.INVALID
    assert "raise the workload's limit_s" in record.reason
    assert 0 < len(record.evals) < len(ROWS)


def test_the_judge_model_counts_in_a_trial_and_its_key_is_nowhere_in_it(own_set, monkeypatch):
    def judges(ask):
        wrong = "The answer is 99" in ask.body["messages"][0]["content"]
        said = f"VERDICT: {'WRONG' if wrong else 'CORRECT'}"
        return Answer(body=whole(ask.api, said, Usage(prompt=5, output=3)))

    with serving(says) as server, serving(judges) as judge:
        monkeypatch.setenv("EVAL_JUDGE_BASE_URL", f"{judge.url}/v1")
        monkeypatch.setenv("EVAL_JUDGE_MODEL", "judge-1")
        monkeypatch.setenv("EVAL_JUDGE_API_KEY", "sk-secret")
        fields = http_fields(server.url)
        (record,) = records_of(eval_plan({"set": str(own_set), "judge": "llm"}, **fields))
    assert record.metrics["accuracy"].value == 0.5
    assert {a.judge for a in record.evals} == {"llm:judge-1"}
    assert all(a.llm_verdict == a.rule_verdict for a in record.evals)
    assert record.point.workload["judge_model"] == "judge-1"
    assert "sk-secret" not in repr(record)
    assert judge.url not in repr(record)
