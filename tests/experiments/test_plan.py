from pathlib import Path

import pytest

from engine.errors import ConfigError
from experiments.agenda import engine_starts
from experiments.axes import axis_names
from experiments.clock import VirtualClock
from experiments.environment import given_by, locked
from experiments.errors import PlanError, WorkloadError
from experiments.plan import load_plan
from experiments.sweep import planned
from experiments.targets.factory import target_factory

PLANS = Path(__file__).parents[2] / "experiments" / "plans"
SYNTHETIC = {"name": "s", "kind": "synthetic", "prompt_tokens": 8, "output_tokens": 4}


def document(**fields):
    return {"name": "test", "target": "simulated", "workloads": [SYNTHETIC], **fields}


def points(code_version="v1", **fields):
    plan = load_plan(document(**fields))
    return planned(plan, target_factory(plan, VirtualClock()), code_version=code_version)


def axes_of(trials):
    return [trial.point.axes for trial in trials]


def test_product_and_zip_make_the_points_they_say():
    # ai-dynamo/aiperf 874
    blocks = [
        {"product": {"batch_size": [1, 2], "draft_length": [0, 5]}},
        {"zip": {"prompt_tokens": [8, 16], "output_tokens": [4, 2]}},
    ]
    trials = points(axes=blocks, order="as_written")
    assert len(trials) == 8
    assert axes_of(trials)[0] == {
        "batch_size": 1,
        "draft_length": 0,
        "prompt_tokens": 8,
        "output_tokens": 4,
    }
    lengths = {(a["prompt_tokens"], a["output_tokens"]) for a in axes_of(trials)}
    assert lengths == {(8, 4), (16, 2)}


def test_a_point_holds_the_whole_configuration_and_workload():
    trial = points(axes=[{"product": {"batch_size": [3]}}], engine={"draft_length": 2})[0]
    assert trial.point.engine["draft_length"] == 2
    assert trial.point.engine["replay_mode"] == "compact"
    assert trial.point.workload["batch_size"] == 3
    assert trial.point.workload["load"] == "closed"
    assert trial.point.workload["content"] == "random ids"
    assert trial.batch_size == 3


def test_a_point_holds_the_configuration_in_force_and_no_auto():
    engine = points()[0].point.engine
    assert engine["dtype"] == "float32"
    assert engine["cache_format"] == "plain"
    assert engine["accelerator"] == "cpu"
    assert engine["draft_length"] == 5
    assert engine["replay_keep_tokens"] == 140
    assert engine["max_model_len"] == 4096
    assert "auto" not in engine.values()


def test_two_ways_to_write_one_configuration_are_one_trial():
    default = points()[0].trial_id
    assert points(engine={"dtype": "float32", "draft_length": 5})[0].trial_id == default
    assert points(engine={"dtype": "bfloat16"})[0].trial_id != default
    assert points(engine={"accelerator": "cuda"})[0].trial_id != default
    with pytest.raises(PlanError, match=r"dtype.*float32.*same configuration.*auto"):
        points(axes=[{"product": {"dtype": ["auto", "float32"]}}])


def test_what_the_environment_gives_is_written_into_the_plan_and_read_once():
    environ = {"DEEPINFER_USE_NEXTN_DECODE": "3", "DEEPINFER_YOCO_PREFILL_TRUNCATION_MODE": "mask"}
    plan = load_plan(document(engine={"replay_mode": "off"}))
    assert given_by(plan, environ) == {"draft_length": "DEEPINFER_USE_NEXTN_DECODE"}
    stored = locked(plan, environ)
    assert stored.engine == {"replay_mode": "off", "draft_length": 3}
    later = {"DEEPINFER_USE_NEXTN_DECODE": "1", "DEEPINFER_MAX_BACKTRACKING_TOKENS": "7"}
    again = load_plan(stored.document())
    assert given_by(again, later) == {}
    assert locked(again, later) == stored


def test_an_axis_is_not_overridden_by_the_environment():
    plan = load_plan(document(axes=[{"product": {"draft_length": [0, 5]}}]))
    assert locked(plan, {"DEEPINFER_USE_NEXTN_DECODE": "3"}).engine == {}


def test_a_variable_out_of_range_is_named():
    with pytest.raises(ConfigError, match="DEEPINFER_USE_NEXTN_DECODE"):
        locked(load_plan(document()), {"DEEPINFER_USE_NEXTN_DECODE": "-3"})


def test_an_expansion_does_not_read_the_environment(monkeypatch):
    before = points()[0]
    monkeypatch.setenv("DEEPINFER_USE_NEXTN_DECODE", "2")
    assert points()[0].trial_id == before.trial_id


def test_limits_of_goodput_are_part_of_what_is_asked():
    plain, limited = points()[0], points(slo={"ttft_s": 0.5})[0]
    assert limited.point.workload["slo_ttft_s"] == 0.5
    assert limited.trial_id != plain.trial_id


def test_where_keeps_what_meets_it():
    trials = points(
        axes=[{"product": {"replay_keep_tokens": [100, 140, 256], "batch_size": [1, 64]}}],
        where=["replay_keep_tokens >= window + max_backtrack + 6", "batch_size <= draft_block"],
    )
    assert {a["replay_keep_tokens"] for a in axes_of(trials)} == {140, 256}
    assert {a["batch_size"] for a in axes_of(trials)} == {1}


def test_repeats_are_passes_over_all_points():
    blocks = [{"product": {"batch_size": [1, 2, 4], "draft_length": [0, 5]}}]
    for order in ("blocked", "as_written"):
        trials = points(axes=blocks, repeats=3, order=order)
        assert [t.repeat for t in trials] == [0] * 6 + [1] * 6 + [2] * 6
    orders = [[t.point.axes for t in trials if t.repeat == r] for r in range(3)]
    assert orders[0] == orders[1]
    shuffled = points(axes=blocks, repeats=3)
    assert len({str([t.point.axes for t in shuffled if t.repeat == r]) for r in range(3)}) > 1
    assert len(points(axes=blocks, repeats=3, max_trials=6)) == 6


def test_blocks_start_each_engine_once_a_pass_and_the_seed_orders_them():
    blocks = [{"product": {"batch_size": [1, 2, 4, 8], "draft_length": [0, 1, 5]}}]
    trials = points(axes=blocks, repeats=2)
    assert len(trials) == 24
    assert engine_starts(trials[:12]) == 3
    written = points(axes=blocks, repeats=2, order="as_written")
    assert {t.trial_id for t in trials} == {t.trial_id for t in written}
    assert [t.trial_id for t in trials] != [t.trial_id for t in written]
    assert points(axes=blocks, repeats=2)[0].trial_id == trials[0].trial_id


def test_several_workloads_are_an_axis():
    two = [SYNTHETIC, {**SYNTHETIC, "name": "t", "prompt_tokens": 9}]
    assert {a["workload"] for a in axes_of(points(workloads=two))} == {"s", "t"}
    zipped = points(workloads=two, axes=[{"zip": {"workload": ["t", "s"], "batch_size": [1, 2]}}])
    assert {(a["workload"], a["batch_size"]) for a in axes_of(zipped)} == {("t", 1), ("s", 2)}


def test_a_cap_on_trials_is_a_cap():
    # ai-dynamo/aiperf 1326
    assert len(points(axes=[{"product": {"batch_size": [1, 2, 3]}}], max_trials=2)) == 2
    assert len(points(axes=[{"product": {"batch_size": [1, 2, 3]}}], max_trials=20)) == 3


def test_trial_ids_follow_the_content_and_nothing_else():
    first = points()[0].trial_id
    assert len(first) == 16
    assert points(name="renamed", question="why?", gates={"error_rate": 0.5})[0].trial_id == first
    assert points(code_version="v2")[0].trial_id != first
    assert points(seed=1)[0].trial_id != first
    assert points(protocol={"name": "quick", "measured_s": 3.0})[0].trial_id != first
    assert points(engine={"draft_length": 1})[0].trial_id != first
    assert points(load={"kind": "closed", "batch_size": 2})[0].trial_id != first
    other = {**SYNTHETIC, "output_tokens": 5}
    assert points(workloads=[other])[0].trial_id != first


def test_a_moved_workload_file_keeps_the_trial_ids(tmp_path):
    ids = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / "t.jsonl"
        path.write_text('{"timestamp": 0, "input_length": 9, "output_length": 2}\n')
        ids.append(points(workloads=[{"name": "t", "kind": "trace", "path": str(path)}])[0])
    assert ids[0].trial_id == ids[1].trial_id


def test_trials_on_one_engine_share_no_content_and_engines_are_asked_the_same():
    blocks = [{"product": {"batch_size": [1, 2], "draft_length": [0, 5]}}]
    by_axes = {tuple(t.point.axes.values()): t.salt for t in points(axes=blocks)}
    trials = points(axes=blocks, repeats=2)
    salts = {(t.point.axes["batch_size"], t.repeat): t.salt for t in trials}
    assert len(set(salts.values())) == 4
    assert by_axes[(1, 0)] == by_axes[(1, 5)]


def test_a_plan_reads_back_from_its_own_document():
    plan = load_plan(document(protocol="standard", load={"kind": "poisson", "rate": 2.0}))
    assert load_plan(plan.document()) == plan
    moved = plan.with_engine(model="elsewhere")
    assert moved.engine == {"model": "elsewhere"}
    assert plan.engine == {}


def test_every_engine_field_is_an_axis_by_name():
    names = axis_names(load_plan(document()))
    assert {"draft_length", "replay_keep_tokens", "data_parallel_size", "batch_size"} <= names


def test_the_published_plans_can_be_read():
    plans = sorted(PLANS.glob("*.yaml"))
    assert "demo" in {path.stem for path in plans}
    for path in plans:
        assert load_plan(path).name == path.stem


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"axes": [{"product": {"batchsize": [1]}}]}, "axes: batchsize.*Did you mean batch_size"),
        ({"axes": [{"product": {"draft_len": [1]}}]}, "It is called draft_length here"),
        ({"axes": [{"product": {"dp": [1]}}]}, "It is called data_parallel_size here"),
        ({"axes": [{"product": {"determinism": [True]}}]}, "batch-invariant kernels yet"),
        ({"axes": [{"product": {"cache": ["on"]}}]}, "the prefix cache yet"),
        ({"axes": [{"product": {"tp": [1, 2]}}]}, "axes: tp.*tensor parallelism yet"),
        ({"axes": [{"product": {"verify_policy": ["x"]}}]}, "confidence-scheduled"),
        ({"engine": {"ep": 2}}, "engine: ep.*expert parallelism yet"),
        ({"engine": {"draft_lenght": 2}}, "Did you mean draft_length"),
        ({"engine": {"draft_length": 2}, "axes": [{"product": {"draft_length": [0]}}]}, "both"),
        ({"axes": [{"product": {"batch_size": []}}]}, "has no value"),
        ({"axes": [{"product": {"batch_size": [1, 1]}}]}, "twice"),
        ({"axes": [{"product": {}}]}, "names no axis"),
        ({"axes": [{}]}, "exactly one of product and zip"),
        ({"axes": [{"zip": {"batch_size": [1, 2], "draft_length": [0]}}]}, "lists of one length"),
        ({"axes": [{"zip": {"batch_size": [1, 1]}}]}, "same configuration"),
        ({"axes": [{"product": {"seed": [0]}}, {"zip": {"seed": [1]}}]}, "two blocks"),
        ({"axes": [{"product": {"batch_size": ["1"]}}]}, "axes: batch_size.*got '1'"),
        ({"axes": [{"product": {"batch_size": [0]}}]}, "axes: batch_size"),
        ({"axes": [{"product": {"scale": [1.0]}}]}, "axes: scale: is no axis"),
        ({"axes": [{"product": {"workload": ["z"]}}]}, "names the workload 'z'"),
        ({"axes": {"batch_size": [1]}}, "axes"),
        ({"where": "batch_size > 5"}, "no point is left of 1"),
        ({"where": ["batch_size > 1", "batch_size < 1"]}, "no point is left"),
        ({"where": "open('x')"}, "where"),
        ({"workloads": []}, "workloads"),
        ({"workloads": [SYNTHETIC, SYNTHETIC]}, "one name"),
        ({"workloads": [{"name": "s"}]}, "workloads.0"),
        ({"workloads": [{**SYNTHETIC, "kind": "dance"}]}, "workloads.0"),
        ({"workloads": [{**SYNTHETIC, "promt_tokens": 1}]}, "Did you mean prompt_tokens"),
        ({"workloads": [{**SYNTHETIC, "prompt_tokens": "8"}]}, "prompt_tokens.*'8'"),
        ({"protocol": "quik"}, "none of quick, standard"),
        ({"protocol": {"name": "quick", "mesured_s": 1}}, "Did you mean measured_s"),
        ({"repeats": 0}, "repeats"),
        ({"protocol": {"name": "quick", "warmup_s": 1}}, "Did you mean.* warm_up_per_slot"),
        ({"slo": {}}, "at least one of ttft_s"),
        ({"slo": {"ttft_s": 0}}, "slo.ttft_s"),
        ({"slo": {"tttf_s": 1.0}}, "Did you mean ttft_s"),
        ({"repeets": 2}, "Did you mean repeats"),
        ({"name": ""}, "name"),
        ({"name": "../../etc"}, "name"),
        ({"load": {"kind": "closed", "rate": 1.0}}, "rate"),
        ({"load": {"kind": "trace"}}, "no arrival times"),
        ({"simulation": {"ttft": 1}}, "Did you mean ttft_s"),
        ({"simulation": {"ttft_s": "fast"}}, "not a number"),
        ({"simulation": {"ttft_s": float("nan")}}, "ttft_s"),
        ({"simulation": {"ttft_s": -1.0}}, "simulation: ttft_s.*from 0"),
        ({"simulation": {"window": None}}, "simulation: window"),
        ({"simulation": {"vocab_size": 0}}, "simulation: vocab_size.*from 3"),
        ({"simulation": {"fail_every": 0}}, "simulation: fail_every.*from 1"),
        ({"simulation": {"tokens_per_chunk": 0}}, "simulation: tokens_per_chunk.*from 1"),
        ({"simulation": {"first_chunk_tokens": 1.5}}, "not a whole number"),
        ({"simulation": {"random_weights": 1}}, "true or false"),
        ({"simulation": {"cached_share": 2}}, "simulation: cached_share.*to 1"),
        ({"simulation": {"ttft_s": 1.0}, "target": "in_process"}, "target: simulated"),
        ({"repeats": 100_000_000}, "repeats.*100000000 trials, more than 100000"),
        ({"protocol": {"name": "quick", "repeats": 10**12}}, "more than 100000"),
        (
            {"axes": [{"product": {n: list(range(999)) for n in ("seed", "max_num_seqs")}}]},
            "has 998001 points, more than 100000",
        ),
        ({"load": {"kind": "closed", "batch_size": 10**9}}, "load.*batch_size"),
        ({"load": {"kind": "poisson", "rate": float("inf")}}, "finite number"),
        ({"load": {"kind": "constant", "rate": 5e-324}}, "load.constant.rate"),
        ({"load": {"kind": "ramp", "rate": 2.0, "ramp_s": 1e-300}}, "load.ramp.ramp_s"),
        ({"load": {"kind": "trace", "time_scale": 1e300}}, "load.trace.time_scale"),
        ({"seed": 2**63}, "seed.*so large"),
        ({"engine": {"model": "a\ud800"}}, "engine: model.*no text"),
        ({"gates": {"foreign_processes": 10**400}}, "gates: foreign_processes.*so large"),
        ({"axes": [{"product": {"batch_size": [1, 10**5000]}}]}, "thousands of digits"),
        ({"load": {"kind": "trace", "time_scale": float("nan")}}, "finite number"),
        (
            {"workloads": [{"name": "t", "kind": "trace", "path": "x", "scale": float("inf")}]},
            "scale.*got inf",
        ),
    ],
)
def test_a_bad_plan_is_refused_with_the_field_and_a_remedy(fields, said):
    with pytest.raises((PlanError, WorkloadError), match=said) as caught:
        points(**fields)
    assert caught.value.exit_code == 2
    assert caught.value.where


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ({"draft_length": 9}, "draft_length.*Use 0 to 5"),
        ({"replay_keep_tokens": 100}, "Use at least 134"),
        ({"draft_length": "five"}, "draft_length"),
        ({"data_parallel_size": 1025}, "data_parallel_size.*Use at most 1024"),
        ({"num_threads": 4097}, "num_threads.*Use at most 4096"),
        ({"replay_mode": "compcat"}, "replay_mode"),
    ],
)
def test_the_engine_refuses_a_configuration_before_anything_runs(engine, said):
    with pytest.raises(ConfigError, match=said):
        points(engine=engine)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("name: a\nname: b\n", "'name' is given twice"),
        ("a: [1\n", "is not YAML"),
        ("- 1\n- 2\n", "is not a mapping"),
        ("{[1, 2]: 3}", "is not YAML"),
        ("name: x\n", "workloads.*is missing"),
        ("a: !!python/object/apply:os.system ['true']", "is not YAML"),
        ("a: &x [1]\nb: *x\n", "alias .*is used"),
        ("a: &x {b: 1}\nc:\n  <<: *x\n", "alias .*is used"),
        ("a: 2026-99-99\n", "is not YAML"),
        ("a: !!int abc\n", "is not YAML"),
        ("a: !!bool perhaps\n", "is not YAML"),
        ("a: !!timestamp never\n", "is not YAML"),
        (f"a: {'9' * 5000}\n", "is not YAML"),
        ("[" * 5000, "nested too deeply"),
    ],
)
def test_a_bad_file_is_refused_by_its_name(tmp_path, text, said):
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    with pytest.raises(PlanError, match=said):
        load_plan(path)


def test_a_missing_file_and_bytes_that_are_no_text_are_refused(tmp_path):
    with pytest.raises(PlanError, match="no such plan"):
        load_plan(tmp_path / "none.yaml")
    path = tmp_path / "plan.yaml"
    path.write_bytes(b"\xff\xfe\x00name")
    with pytest.raises(PlanError, match="cannot be read"):
        load_plan(path)


def test_an_error_repeats_only_the_beginning_of_a_long_value():
    with pytest.raises(PlanError) as caught:
        points(repeats="9" * 100_000)
    assert len(str(caught.value)) < 500
