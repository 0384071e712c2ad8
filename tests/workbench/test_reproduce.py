"""A bundle planned and measured again: the same trials, or what differs and why."""

import dataclasses
import json

import pytest
from typer.testing import CliRunner

from experiments.plan import load_plan
from experiments.records import MetricValue
from tests.fakes import measured, records
from tests.fakes.sweeps import SYNTHETIC
from workbench.bundle import opened
from workbench.cli import app
from workbench.figures_text import number
from workbench.report import write_bundle
from workbench.reproduce import ReproducedState, replan, reproduction
from workbench.runs import begin, outlook
from workbench.store import Store

PLAN = {
    "name": "again",
    "question": "Does drafting pay?",
    "target": "simulated",
    "simulation": {"ttft_s": 0.002, "tpot_s": 0.0005},
    "protocol": {
        "name": "quick", "measured_s": 0.05, "warm_up_per_slot": 0, "idle_s": 0,
        "bootstrap_draws": 20,
    },
    "axes": [{"product": {"draft_length": [0, 5]}}],
    "workloads": [SYNTHETIC],
    "repeats": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def bundled(tmp_path_factory):
    """A bundle of a run that was truly measured, on the simulated engine."""
    folder = tmp_path_factory.mktemp("original")
    store = Store(folder / "results")
    job = begin(outlook(load_plan(PLAN), store), store)
    list(job.records())
    return write_bundle(job.close(), folder / "report.zip", ("md",))


@pytest.fixture
def run(bundled):
    with opened(bundled) as store:
        yield store.run(store.run_ids()[0])


def rewritten(run, **changes):
    """The same run with other fields in its run.json."""
    path = run.folder / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return Store(run.folder.parent).run(run.run_id)


def host_facts(found):
    """What is told of the host; somebody may edit the checkout while the tests run."""
    return {
        change.name: change.bundled
        for change in found.environment
        if not change.name.startswith(("git_", "code_"))
    }


def test_the_same_code_plans_the_same_trials_anywhere(run, tmp_path):
    found = replan(run, Store(tmp_path))
    assert found.identical
    assert found.same == 4
    assert (found.causes, found.bundled, found.here) == ((), (), ())


def test_this_host_differs_from_itself_in_nothing(run, tmp_path):
    assert host_facts(replan(run, Store(tmp_path))) == {}


def test_another_machine_is_told_fact_by_fact_and_changes_no_trial(run, tmp_path):
    changed = {**run.environment, "cpu_model": "Other CPU", "cpu_mhz_now": 1.0}
    changed["packages"] = {**changed["packages"], "torch": "0.1"}
    found = replan(rewritten(run, environment=changed), Store(tmp_path))
    assert found.identical
    assert host_facts(found) == {"cpu_model": "Other CPU", "packages.torch": "0.1"}


def test_other_code_is_named_as_the_cause(run, tmp_path, monkeypatch):
    monkeypatch.setattr("workbench.runs.code_version", lambda: "0.1.0+other")
    found = replan(run, Store(tmp_path))
    assert not found.identical
    assert found.same == 0
    assert [(c.name, c.here) for c in found.causes] == [("code", "0.1.0+other")]


def test_another_question_is_named_field_by_field(run, tmp_path):
    plan = {**run.plan, "workloads": [{**run.plan["workloads"][0], "output_tokens": 6}]}
    found = replan(rewritten(run, plan=plan), Store(tmp_path))
    assert not found.identical
    told = {change.name: (change.bundled, change.here) for change in found.causes}
    assert told["workload.output_tokens"] == ("4", "6")
    assert not {"code", "checkpoint"} & told.keys()


def test_a_run_that_was_cut_short_still_plans_identically(run, tmp_path):
    lost = sorted(run.trial_ids())[0]
    for path in run.files(lost).values():
        path.unlink()
    (run.folder / "trials" / lost).rmdir()
    found = replan(Store(run.folder.parent).run(run.run_id), Store(tmp_path))
    assert found.identical
    assert found.same == 3


def stored(folder, name, speed, repeats=4):
    items = measured.repeats(repeats, speed=speed, noise=0.005)
    return records.fill_store(folder, items, name=name)


@pytest.mark.parametrize(
    ("speed", "state"), [(1.0, ReproducedState.REPRODUCED), (1.5, ReproducedState.DIFFERS)]
)
def test_a_number_is_reproduced_or_differs_by_its_whole_interval(tmp_path, speed, state):
    found = reproduction(stored(tmp_path, "a", 1.0), stored(tmp_path, "b", speed), tolerance=0.1)
    assert {row.state for row in found.rows} == {state}
    assert found.failed == (state is ReproducedState.DIFFERS)
    for row in found.rows:
        assert row.low <= row.ratio <= row.high
        assert str(state) in row.sentence


def test_one_repeat_never_shows_that_another_run_differs(tmp_path):
    runs = [
        records.fill_store(tmp_path, [measured.trial(speed=speed, count=40)], name=name)
        for name, speed in (("a", 1.0), ("b", 2.0))
    ]
    found = reproduction(*runs, tolerance=0.1)
    assert found.rows
    assert {row.state for row in found.rows} == {ReproducedState.NOT_JUDGED}
    assert not found.failed
    first = found.rows[0]
    assert first.here / first.bundled == pytest.approx(first.ratio)
    assert f"{number(first.bundled)} in the bundle, {number(first.here)} here" in first.sentence


def test_a_run_of_prefill_alone_is_led_by_the_rate_of_prefill(tmp_path):
    runs = [
        records.fill_store(
            tmp_path,
            [
                dataclasses.replace(
                    item, metrics={**item.metrics, "prefill_tok_s": MetricValue(value=rate, n=9)}
                )
                for item in measured.repeats(1)
            ],
        )
        for rate in (1000.0, 1100.0)
    ]
    found = reproduction(*runs)
    assert found.rows[0].metric == "prefill_tok_s"
    assert (found.rows[0].bundled, found.rows[0].here) == pytest.approx((1000.0, 1100.0))
    assert found.rows[0].ratio == pytest.approx(1.1)
    assert found.comparison.metrics[0] == "prefill_tok_s"


def test_another_machine_does_not_stand_in_the_way_of_the_comparison(tmp_path):
    runs = [
        records.fill_store(
            tmp_path,
            measured.repeats(4, noise=0.005),
            name=name,
            environment={**records.environment(), "tokenizer_hashes": [name]},
        )
        for name in ("here", "there")
    ]
    found = reproduction(*runs)
    assert [one.name for one in found.comparison.differences if one.accepted] == ["tokenizer"]
    assert not found.failed


def test_the_command_plans_measures_and_compares(bundled, tmp_path):
    arguments = ["reproduce", str(bundled), "--run", "--json", "--store", str(tmp_path / "here")]
    done = CliRunner().invoke(app, [*arguments, "--tolerance", "90%"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["replan"]["identical"] is True
    assert told["reproduction"]["asked_outputs"] > 0
    assert told["reproduction"]["equal_outputs"] == told["reproduction"]["asked_outputs"]
    (summary,) = Store(tmp_path / "here").runs()
    assert summary.run_id == told["reproduction"]["run"]
    assert sum(summary.counts.values()) == 4


def test_without_run_the_command_measures_nothing(bundled, tmp_path):
    done = CliRunner().invoke(app, ["reproduce", str(bundled), "--store", str(tmp_path / "here")])
    assert done.exit_code == 0, done.output
    assert "plans identically here, 4 of 4 trial ids are equal" in done.output
    assert Store(tmp_path / "here").runs() == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["reproduce", "no.zip"], "no such bundle"),
        (["reproduce", "{bundle}", "--tolerance", "much"], "no share"),
        (["reproduce", "{bundle}", "--tolerance", "0"], "no tolerance"),
        (["reproduce", "{bundle}", "--of", "other"], "no run of this store"),
        (["export", "--to", "xls", "--store", "{store}"], "vllm, llm-d, csv, parquet"),
        (["report", "--sections", "end", "--store", "{store}"], "front, problems"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_2(bundled, arguments, words):
    store = bundled.parent / "results"
    words_given = [a.format(bundle=bundled, store=store) for a in arguments]
    done = CliRunner().invoke(app, words_given)
    assert done.exit_code == 2
    assert words in " ".join(done.output.split())


@pytest.mark.parametrize("to", ["vllm", "llm-d", "csv", "parquet"])
def test_a_run_is_exported_in_every_form(bundled, tmp_path, to):
    store = str(bundled.parent / "results")
    done = CliRunner().invoke(
        app, ["export", "--to", to, "--out", str(tmp_path / "x"), "--store", store, "--json"]
    )
    assert done.exit_code == 0, done.output
    written = json.loads(done.stdout.splitlines()[-1])
    assert sorted(written) == sorted(path.name for path in (tmp_path / "x").iterdir())
    assert len(written) == (4 if to in ("vllm", "llm-d") else 1)
