"""Is B better than A: what may be said of two arms, and what refuses it."""

import dataclasses
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import workbench as wb
from experiments.records import MetricValue, Point, TrialState
from tests.fakes import environments, measured, records
from workbench.cli import app
from workbench.comparability import Difference, Severity
from workbench.compare_tables import show_differences
from workbench.errors import ComparisonError, UsageError
from workbench.trial_files import read_document

RATE = "output_tok_s_device"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Makes stored runs of repeats, each kind once: tests only read them."""
    folder, kept = tmp_path_factory.mktemp("store"), {}

    def stored(*, speed=1.0, repeats=3, noise=0.01, seed=0, batches=(1,), name="demo", **changes):
        key = repr((speed, repeats, noise, seed, batches, name, changes))
        if key not in kept:
            items = [
                item
                for batch in batches
                for item in measured.repeats(
                    repeats, speed=speed, noise=noise, seed=seed + 31 * batch, batch_size=batch
                )
            ]
            kept[key] = records.fill_store(folder, items, name=name, **changes)
        return kept[key]

    return stored


def row(table, metric=RATE):
    return table[table["metric"] == metric].iloc[0]


def test_a_gain_is_told_in_words_with_its_interval(store):
    a, b = store(), store(speed=1.1, seed=5)
    found = row(wb.compare(a, b).overall)
    assert found["verdict"] == "better"
    assert found["sentence"].startswith("B is faster by ")
    assert 1.05 < found["low"] < found["ratio"] < found["high"] < 1.15
    assert found["basis"] == "repeats in pairs"
    assert found["repeats"] == 3
    slower = row(wb.compare(b, a, metrics=["tpot_s_mean"]).overall, "tpot_s_mean")
    assert slower["verdict"] == "worse"
    assert "slower: " in slower["sentence"]
    assert slower["sentence"].count("more") == 1


def test_no_difference_is_claimed_where_the_interval_holds_none_and_needed_repeats_are_told(
    store,
):
    a, b = store(noise=0.05), store(noise=0.05, seed=9)
    found = row(wb.compare(a, b).overall)
    assert found["verdict"] == "none shown"
    assert "no difference shown" in found["sentence"]
    assert found["needed_repeats"] > 3
    assert f"{found['needed_repeats']:.0f} repeats would be needed to see 3 %" in found["sentence"]


def test_one_repeat_is_not_judged_however_far_apart_the_arms_are(store):
    a, b = (store(repeats=1, speed=speed) for speed in (1.0, 2.0))
    found = row(wb.compare(a, b).overall)
    assert found["verdict"] == "not judged"
    assert found["basis"] == "within-run"
    assert found["ratio"] == pytest.approx(2.0, rel=0.05)
    assert "within the run" in found["sentence"]


def test_arms_that_were_asked_the_same_are_resampled_request_by_request(tmp_path):
    same = measured.trial(draft_length=0)
    faster = measured.trial(speed=1.05, draft_length=5)  # the same requests, each 5 % faster
    other = measured.trial(speed=1.05, seed=3, draft_length=5)
    paired = records.fill_store(tmp_path, [same, faster])
    apart = [
        records.fill_store(tmp_path, [one], plan={**records.plan(), "seed": seed})
        for seed, one in ((1, same), (2, other))
    ]

    def width(c):
        found = row(c.overall, "ttft_s_mean")
        return found["high"] - found["low"]

    chosen = [wb.select(paired, draft_length=k) for k in (0, 5)]
    metrics = ["ttft_s_mean"]
    assert width(wb.compare(*chosen, metrics=metrics)) < 1e-6
    assert width(wb.compare(*apart, metrics=metrics)) > 0.01


def test_arms_of_one_run_are_its_points_that_differ_in_what_was_chosen(tmp_path):
    items = [
        item
        for batch in (1, 4)
        for draft, speed in ((0, 1.0), (5, 1.2))
        for item in measured.repeats(
            3, speed=speed, seed=batch + draft, batch_size=batch, draft_length=draft
        )
    ]
    run = records.fill_store(tmp_path, items)
    found = wb.compare(wb.select(run, draft_length=0), wb.select(run, draft_length=5))
    assert sorted(found.points["point"].unique()) == ["1 in flight", "4 in flight"]
    assert (found.points[found.points["metric"] == RATE]["verdict"] == "better").all()
    chosen = found.configuration.set_index("setting").loc["draft_length"]
    assert chosen.tolist() == ["0", "5", True]


def test_points_without_a_partner_are_counted(store):
    a, b = store(batches=(1, 4)), store(batches=(4, 16))
    found = wb.compare(a, b)
    assert found.matches.alone == (1, 1)
    assert len(found.matches.rows) == 1


def test_axes_that_share_no_value_are_named(store):
    a, b = store(batches=(1, 2)), store(batches=(4, 16))
    with pytest.raises(ComparisonError, match="batch_size is 1, 2 and 16, 4"):
        wb.compare(a, b)


def test_a_load_differs_on_purpose_only_where_it_is_named(store):
    a, b = store(batches=(1,)), store(batches=(4,))
    with pytest.raises(ComparisonError, match="batch_size is 1 and 4"):
        wb.compare(a, b)
    found = wb.compare(wb.select(a, batch_size=1), wb.select(b, batch_size=4))
    assert [one.name for one in found.differences if one.severity == "warn"] == ["batch_size"]
    assert len(found.overall)


def test_a_setting_that_nobody_has_is_refused_with_the_nearest(store):
    run = store()
    with pytest.raises(UsageError, match="Did you mean draft_length"):
        wb.compare(wb.select(run, draft_lenght=5), run)
    with pytest.raises(UsageError, match="no metric"):
        wb.compare(run, run, metrics=["tok_s"])


def test_several_points_that_fit_one_are_refused(tmp_path):
    items = [item for d in (0, 5) for item in measured.repeats(2, draft_length=d)]
    run = records.fill_store(tmp_path, items)
    lone = records.fill_store(tmp_path, measured.repeats(2, draft_length=3))
    with pytest.raises(ComparisonError, match="several points"):
        wb.compare(wb.select(lone, draft_length=3), run)


def test_invalid_repeats_are_no_part_of_a_comparison(tmp_path, store):
    items = measured.repeats(4)
    bad = dataclasses.replace(items[3], state=TrialState.INVALID, reason="drift: 9 %")
    a = records.fill_store(tmp_path, [*items[:3], bad])
    assert row(wb.compare(a, store()).overall)["repeats"] == 3
    none = [dataclasses.replace(one, state=TrialState.FAILED) for one in items]
    with pytest.raises(ComparisonError, match="no valid point"):
        wb.compare(records.fill_store(tmp_path, none), a)


def test_a_missing_or_zero_metric_is_not_judged_and_says_why(store):
    a, b = store(), store(seed=2)
    metrics = ["error_rate", "energy_j_token", "ttft_s_p99"]
    found = wb.compare(a, b, metrics=metrics).overall.set_index("metric")
    assert (found["verdict"] == "not judged").all()
    assert "no ratio" in found.loc["error_rate", "reason"]
    assert "n=36 < 200" in found.loc["ttft_s_p99", "reason"]
    assert found["ratio"].isna().all()


def test_what_rests_on_some_of_the_points_says_so(tmp_path, store):
    a = store(batches=(1, 4))
    lacking = [
        dataclasses.replace(
            item,
            metrics=item.metrics
            | ({"tok_s_user": records.MetricValue(value=None, n=0, reason="x")} if k < 4 else {}),
        )
        for k, item in enumerate(
            one for batch in (1, 4) for one in measured.repeats(4, batch_size=batch, seed=batch)
        )
    ]
    found = row(wb.compare(a, records.fill_store(tmp_path, lacking)).overall, "tok_s_user")
    assert found["points"] == 1
    assert found["sentence"].endswith("; at 1 of 2 points")


def differ(store, name, value):
    a = store(repeats=2, environment=environments.GPU)
    b = store(repeats=2, environment=environments.changed(name, value))
    return wb.compare(a, b)


@pytest.mark.parametrize(
    ("fact", "value", "name"),
    [
        ("devices.name", "NVIDIA B200", "device"),
        ("devices.sm_clock_application_mhz", 1500, "clocks"),
        ("devices.sm_clock_max_mhz", 1500, "clocks"),
        ("devices.power_limit_w", 500.0, "power_limit"),
        ("devices.mig", True, "mig"),
        ("driver", "580.1", "driver"),
        ("torch_build.cuda", "12.8", "cuda"),
        ("tokenizer_hashes", ["t1"], "tokenizer"),
    ],
)
def test_what_would_be_compared_instead_refuses_every_delta(store, fact, value, name):
    found = differ(store, fact, value)
    assert [one.name for one in found.blocked] == [name]
    for ask in (lambda: found.overall, lambda: found.points, lambda: found.gate(0.03)):
        with pytest.raises(ComparisonError, match=f"--accept {name}"):
            ask()
    accepted = wb.compare(found.a, found.b, accept=[name])
    assert not accepted.blocked
    assert len(accepted.overall)
    assert accepted.differences[0].accepted


@pytest.mark.parametrize(
    ("fact", "value", "name"),
    [
        ("packages.torch", "2.14.0", "torch"),
        ("cuda_driver", 13.0, "cuda_driver"),
        ("devices.ecc", False, "ecc"),
        ("kernel", "6.9.0", "kernel"),
        ("torch_threads.intra_op", 4, "threads"),
        ("environment_variables.OMP_NUM_THREADS", "4", "variables"),
        ("git_dirty", True, "code_dirty"),
    ],
)
def test_what_may_move_the_numbers_is_a_warning_before_them(store, fact, value, name):
    found = differ(store, fact, value)
    told = {one.name: one for one in found.differences}
    assert told[name].severity == "warn"
    assert not found.blocked
    assert len(found.overall)


@pytest.mark.parametrize("name", ["driver", "tokenizer_hashes", "git_dirty"])
def test_a_fact_that_one_side_lacks_is_a_warning_with_its_reason(store, name):
    a = store(repeats=2, environment=environments.GPU)
    b = store(repeats=2, environment=environments.without(name, "nobody answers"))
    told = [one for one in wb.compare(a, b).differences if "not known" in one.sentence]
    assert len(told) == 1
    assert told[0].severity == "warn"
    assert "of B" in told[0].sentence
    assert ("nobody answers" in told[0].sentence) == (told[0].name == name)


def with_workload(items, **fields):
    return [
        dataclasses.replace(
            item,
            point=Point(
                axes=item.point.axes,
                engine=item.point.engine,
                workload={**item.point.workload, **fields},
                checkpoint=fields.get("checkpoint", item.point.checkpoint),
            ),
        )
        for item in items
    ]


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("content", "random ids", "text"),
        ("content", "synthetic acceptance", "text"),
        ("load", "closed", "poisson"),
        ("slo_ttft_s", 1.0, 2.0),
        ("content_hash", "aaaa", "bbbb"),
    ],
)
def test_points_that_were_asked_otherwise_are_told_apart_by_name(tmp_path, name, first, second):
    a, b = (
        records.fill_store(tmp_path, with_workload(measured.repeats(2), **{name: value}))
        for value in (first, second)
    )
    found = wb.compare(a, b)
    expected = {"slo_ttft_s": "slo", "content_hash": "workload"}.get(name, name)
    assert [one.name for one in found.blocked] == [expected]
    assert len(wb.compare(a, b, accept=[expected]).overall)


def test_other_weights_block_though_everything_else_is_the_same(tmp_path):
    a, b = (
        records.fill_store(tmp_path, with_workload(measured.repeats(2), checkpoint=c))
        for c in ("a" * 32, "b" * 32)
    )
    assert [one.name for one in wb.compare(a, b, accept=["workload"]).blocked] == ["checkpoint"]


def test_a_clock_that_ran_otherwise_is_a_warning_though_nobody_set_it(tmp_path):
    runs = []
    for clock in (1980.0, 1700.0):
        items = [
            dataclasses.replace(
                item,
                metrics={
                    **item.metrics, "device_clock_mhz": records.MetricValue(value=clock, n=9)
                },
            )
            for item in measured.repeats(2)
        ]  # fmt: skip
        runs.append(records.fill_store(tmp_path, items, environment=environments.GPU))
    told = [one for one in wb.compare(*runs).differences if one.name == "clock_observed"]
    assert [one.severity for one in told] == ["warn"]


def test_a_simulated_arm_is_never_held_against_a_real_one(store):
    a, b = store(repeats=2), store(repeats=2, engine="simulated")
    assert "target" in [one.name for one in wb.compare(a, b).blocked]


def test_only_what_blocks_can_be_accepted(store):
    run = store(repeats=2)
    with pytest.raises(UsageError, match="nothing that blocks"):
        wb.compare(run, run, accept=["torch"])


def gate(store, *, speed, noise, repeats=6, metric=RATE, batches=(1,)):
    a = store(noise=noise, repeats=repeats, batches=batches)
    b = store(speed=speed, noise=noise, repeats=repeats, seed=4, batches=batches)
    return wb.compare(a, b).gate(0.03, metric)


def test_a_gate_fails_only_where_the_interval_leaves_no_doubt(store):
    clear = gate(store, speed=0.9, noise=0.01)
    assert clear.failed
    assert clear.rows[0].high < 0.97
    doubtful = gate(store, speed=0.96, noise=0.05)
    assert not doubtful.failed
    assert not doubtful.decided
    assert doubtful.rows[0].state == "undecided"
    assert "repeats would be needed to see 3 %" in doubtful.rows[0].sentence
    fine = gate(store, speed=1.0, noise=0.005)
    assert fine.rows[0].state == "passed"
    assert fine.decided
    assert gate(store, speed=0.99, noise=0.001).rows[0].state == "passed"


def test_a_gate_knows_which_way_is_worse(store):
    assert gate(store, speed=0.8, noise=0.01, metric="ttft_s_p50").failed
    assert not gate(store, speed=1.25, noise=0.01, metric="ttft_s_p50").failed
    assert not gate(store, speed=1.25, noise=0.01).failed
    with pytest.raises(UsageError, match="better"):
        gate(store, speed=1.0, noise=0.01, repeats=2, metric="prompt_tokens")


def test_one_repeat_never_fails_a_gate(store):
    found = gate(store, speed=0.5, noise=0.0, repeats=1)
    assert found.rows[0].state == "not judged"
    assert not found.failed


def test_many_points_share_the_chance_of_a_false_alarm(store):
    found = gate(store, speed=1.0, noise=0.01, repeats=3, batches=(1, 4, 16))
    assert found.rows[0].where == "all points"
    assert sum(1 - one.coverage for one in found.rows) == pytest.approx(0.05)


def run_cli(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_the_command_exits_3_for_a_regression_4_in_doubt_and_0_for_none(store):
    a, b = store(), store(speed=0.9, seed=4, name="new")
    worse = run_cli(
        "compare", a.run_id, b.run_id, "--store", a.folder.parent, "--gate", "3%", "--json"
    )
    assert worse.exit_code == 3, worse.output
    document = json.loads(worse.stdout.strip().splitlines()[-1])
    assert document["gate"]["failed"]
    assert document["gate"]["rows"][0]["state"] == "regression"
    lone = store(repeats=1, speed=0.25, name="lone")
    doubt = run_cli("compare", a.run_id, lone.run_id, "--store", a.folder.parent, "--gate", "3%")
    assert doubt.exit_code == 4, doubt.output
    assert "undecided, which is no pass; 1 point: 1 not judged" in " ".join(doubt.output.split())
    better = run_cli("compare", b.run_id, a.run_id, "--store", a.folder.parent, "--gate", "0.03")
    assert better.exit_code == 0, better.output
    assert "B is faster by" in better.output.replace("\n", " ")
    assert (
        run_cli("compare", a.run_id, b.run_id, "--store", a.folder.parent, "--gate", "x").exit_code
        == 2
    )


def test_the_command_tells_what_differs_before_it_refuses_a_delta(store):
    a = store(repeats=2, environment=environments.GPU)
    b = store(repeats=2, name="new", environment=environments.changed("driver", "580.1"))
    refused = run_cli("compare", a.run_id, b.run_id, "--store", a.folder.parent, "--json")
    assert refused.exit_code == 2
    assert "block: The driver differs: 570.124 and 580.1" in refused.output
    assert "B/A" not in refused.output
    accepted = run_cli(
        "compare",
        a.run_id,
        b.run_id,
        "--store",
        a.folder.parent,
        "--accept",
        "driver",
        "--metric",
        RATE,
    )
    assert accepted.exit_code == 0, accepted.output
    assert accepted.output.index("accepted") < accepted.output.index("B/A")


def test_no_comparison_judges_an_acceptance_rate(tmp_path):
    # vllm-project/vllm 39359: the rate falls with the draft length, the length does not mislead.
    drafted = {
        name: MetricValue(value=value, n=9)
        for name, value in (("acceptance_length", 2.0), ("acceptance_rate", 0.4))
    }
    items = [
        dataclasses.replace(item, metrics={**item.metrics, **drafted})
        for length in (3, 5)
        for item in measured.repeats(2, draft_length=length)
    ]
    run = records.fill_store(tmp_path, items)
    arms = [wb.select(run, draft_length=length) for length in (3, 5)]
    judged = set(wb.compare(*arms).overall["metric"])
    assert "acceptance_length" in judged
    assert "acceptance_rate" not in judged


def test_the_command_compares_points_of_one_run(tmp_path):
    items = [i for d in (0, 5) for i in measured.repeats(2, draft_length=d, speed=1 + d / 50)]
    run = records.fill_store(tmp_path, items)
    arms = [f"{run.run_id}:draft_length={d}" for d in (0, 5)]
    assert run_cli("compare", *arms, "--store", tmp_path).exit_code == 0
    assert run_cli("compare", f"{run.run_id}:draft", run.run_id, "--store", tmp_path).exit_code == 2


def test_a_comparison_reads_the_same_however_the_store_was_left(store):
    a, b = store(), store(speed=1.05, seed=3)
    first = wb.compare(a, b).overall
    folder = a.folder.parent
    (folder / "index.sqlite").unlink()
    again = wb.compare(wb.Store(folder).run(a.run_id), wb.Store(folder).run(b.run_id)).overall
    assert first.equals(again)
    kept = read_document(a.folder / "trials" / next(iter(a.trial_ids())))
    assert math.isfinite(kept["metrics"][RATE]["value"])
    assert np.isfinite(first["ratio"].dropna()).all()


def test_settings_that_one_side_alone_has_share_a_line(capsys):
    def setting(name, a, b):
        sentence = f"The setting {name} differs: {a} and {b}."
        return Difference(name=name, a=a, b=b, severity=Severity.NOTE, sentence=sentence)

    found = [
        setting("overlap", "not known", "yes"),
        setting("batch_size", "1", "4"),
        setting("graphs", "not known", "off"),
        setting("batching", "static", "not known"),
    ]
    show_differences(SimpleNamespace(differences=found))
    assert capsys.readouterr().out.splitlines() == [
        "note: The setting batch_size differs: 1 and 4.",
        "note: Settings of A that B does not tell: batching static.",
        "note: Settings of B that A does not tell: overlap yes; graphs off.",
    ]
