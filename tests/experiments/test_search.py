"""Adaptive search: what it finds, what it is told, and that a resume goes on where it was."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import ConfigError
from experiments.errors import MissingPackageError, PlanError, TargetError
from experiments.outcome import Outcome, outcome_of
from experiments.records import TrialId, TrialState
from experiments.search_spec import SearchSpec, limit, search_words
from experiments.search_verdict import Tried, verdict
from tests.fakes.sweeps import Rules, essence, plan_of, sweep, told_by

GOAL = {"maximize": "output_tok_s"}
SIZES = {"batch_size": [1, 4]}
PROTOCOL = {"name": "quick", "measured_s": 0.01, "warm_up_per_slot": 0}


def search_plan(method="bisect", over=None, trials=12, limits=("itl_s_mean <= 0.0021",), **fields):
    search = {
        "maximize": "output_tok_s",
        "over": over or {"batch_size": [1, 40]},
        "subject_to": list(limits),
        "trials": trials,
        "method": method,
    }
    simulation = {"tpot_s": 0.001, "tpot_per_request_s": 0.0001}
    return plan_of(search=search, protocol=PROTOCOL, simulation=simulation, **fields)


def tried(records):
    return [Tried(trial_id=r.trial_id, axes=r.point.axes, outcome=outcome_of(r)) for r in records]


def run(plan, rules=None, told=None):
    """The records of a search on the simulated target with the plan's own profile."""
    from experiments.clock import VirtualClock
    from experiments.observe import NoObserver
    from experiments.sweep import expanded, measure
    from experiments.targets.factory import target_factory
    from experiments.trial import Bench

    if rules is not None:
        return list(sweep(plan, rules, told=told))
    clock = VirtualClock()
    factory = target_factory(plan, clock)
    bench = Bench(plan=plan, clock=clock, observer=NoObserver())
    agenda = expanded(plan, factory, code_version="v1")
    return list(measure(agenda, factory, bench, told=told or {}))


def test_bisection_finds_the_largest_load_that_meets_every_limit():
    plan = search_plan(engine={"draft_length": 0})
    records = run(plan)
    found = verdict(plan.search, tried(records))
    exhaustive = {
        r.point.axes["batch_size"]: r.metrics["itl_s_mean"].value
        for r in run(
            plan_of(
                axes=[{"product": {"batch_size": {"range": [1, 40]}}}],
                simulation=plan.simulation,
                protocol=PROTOCOL,
                engine={"draft_length": 0},
            )
        )
    }
    best = max(size for size, itl_s in exhaustive.items() if itl_s <= 0.0021)
    assert 1 < best < 40
    assert found.best.axes == {"batch_size": best}
    assert len(records) <= 9, "it halves"


def test_a_bisection_ends_at_an_end_that_meets_the_limits_or_at_once_where_none_does():
    assert len(run(search_plan(limits=["itl_s_mean <= 10"]))) == 2
    assert len(run(search_plan(limits=["itl_s_mean <= 1e-9"]))) == 1


def test_no_answer_names_the_limit_that_was_never_met_and_the_nearest_point():
    # ai-dynamo/aiconfigurator 725, 328
    plan = search_plan(limits=["itl_s_mean <= 1e-9", "ttft_s_p50 <= 10"])
    found = verdict(plan.search, tried(run(plan)))
    assert found.best is None
    assert found.never_met == ["itl_s_mean <= 1e-09"]
    assert found.met["ttft_s_p50 <= 10"] == 1
    assert found.nearest.axes == {"batch_size": 1}


def test_optuna_finds_the_best_point_within_the_limits_and_measures_no_point_twice():
    pytest.importorskip("optuna", reason="optuna is not installed")
    over = {"batch_size": [1, 40], "draft_length": [0, 5]}
    plan = search_plan("optuna", over, trials=25, limits=["itl_s_mean <= 0.0021"])
    records = run(plan)
    assert len(records) == 25
    assert records[0].point.axes == {"batch_size": 1, "draft_length": 0}, "the low corner first"
    assert len({r.trial_id for r in records}) == 25
    found = verdict(plan.search, tried(records))
    assert found.best.axes["batch_size"] > 8
    assert found.best.outcome.values["itl_s_mean"] <= 0.0021


def test_a_small_space_is_seen_whole_and_the_search_ends():
    pytest.importorskip("optuna", reason="optuna is not installed")
    over = {"draft_length": [0, 1], "replay_mode": {"choices": ["off", "compact"]}}
    records = run(search_plan("optuna", over, trials=30, limits=[]))
    assert len(records) == len({tuple(r.point.axes.values()) for r in records}) == 4


def test_what_cannot_be_measured_is_told_as_failed_and_what_is_refused_leaves_no_record():
    pytest.importorskip("optuna", reason="optuna is not installed")
    rules = Rules(
        dies=lambda engine, _: engine["draft_length"] == 5,
        refuses_start=lambda engine: TargetError("no") if engine["draft_length"] == 4 else None,
    )
    over = {"draft_length": [0, 9], "batch_size": [1, 4]}  # the model drafts 5 at most
    plan = search_plan("optuna", over, trials=16, limits=[], where="draft_length != 3")
    found = run(plan, rules)
    lengths = {r.point.axes["draft_length"] for r in found}
    assert lengths <= {0, 1, 2, 4, 5}
    failed = [r for r in found if r.state is not TrialState.OK]
    assert {r.point.axes["draft_length"] for r in failed} <= {4, 5}
    assert len(found) == len({r.trial_id for r in found})


WHOLE = {}
SEARCHES = {
    "bisect": {"method": "bisect"},
    "optuna": {
        "method": "optuna",
        "over": {"batch_size": [1, 64], "draft_length": [0, 5]},
        "trials": 14,
    },
    "choices": {
        "method": "optuna",
        "over": {"replay_mode": {"choices": ["off", "mask", "compact"]}, "batch_size": [1, 8]},
        "trials": 12,
        "limits": (),
    },
}


def search_rules():
    """With noise, and one draft length that does not live."""
    return Rules(jitter=2.0, dies=lambda engine, _: engine["draft_length"] == 3)


@settings(max_examples=12)
@given(st.sampled_from(sorted(SEARCHES)), st.data())
def test_any_beginning_of_a_search_and_what_a_resume_measures_are_the_whole(name, data):
    if name != "bisect":
        pytest.importorskip("optuna", reason="optuna is not installed")
    plan = search_plan(**SEARCHES[name])
    if name not in WHOLE:
        WHOLE[name] = run(plan, search_rules())
    records = WHOLE[name]
    cut = data.draw(st.integers(0, len(records)))
    rest = run(plan, search_rules(), told_by(records[:cut]))
    assert [*map(essence, records[:cut]), *map(essence, rest)] == [*map(essence, records)]


def test_a_missing_package_is_told_before_anything_runs(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingPackageError, match=r"pip install -e '.\[search\]'"):
        run(search_plan("optuna"))


@pytest.mark.parametrize(
    ("search", "said"),
    [
        ({}, "over.*is missing"),
        ({"over": {}}, "over"),
        ({"over": {"batch_size": [1, 4]}}, "exactly one of maximize and minimize"),
        ({"maximize": "x", "minimize": "y", "over": {"batch_size": [1, 4]}}, "exactly one of"),
        ({"maximize": "output_toks", "over": {"batch_size": [1, 4]}}, "no metric"),
        (
            {
                **GOAL,
                "over": SIZES,
                "subject_to": ["ttft < 1"],
            },
            "'ttft' is no metric",
        ),
        (
            {**GOAL, "over": SIZES, "subject_to": ["a == 1"]},
            "metric <= number",
        ),
        (
            {
                **GOAL,
                "over": SIZES,
                "subject_to": ["a < 1.2.3"],
            },
            "metric <= number",
        ),
        ({**GOAL, "over": {"batch_size": [4, 1]}}, "low < high"),
        ({**GOAL, "over": {"replay_mode": {"choices": ["mask", "compct"]}}}, "compct"),
        ({**GOAL, "over": {"batch_size": {"choices": [1, 2, 1]}}}, "twice"),
        ({**GOAL, "over": {"batch_size": [1, 2, 3]}}, r"\[low, high\]"),
        ({**GOAL, "over": {"batch_size": {"low": 1}}}, "low, high"),
        ({**GOAL, "over": {"batch_size": {"choices": [1]}}}, "two choices"),
        ({**GOAL, "over": {"batchsize": [1, 4]}}, "Did you mean batch_size"),
        ({**GOAL, "over": {"tp": [1, 4]}}, "search.over: tp.*tensor"),
        ({**GOAL, "over": {"batch_size": [0.5, 4]}}, "batch_size"),
        ({**GOAL, "over": {"batch_size": [-4, 0]}}, "batch_size"),
        (
            {**GOAL, "over": SIZES, "method": "bisect"},
            "bisect needs subject_to",
        ),
        (
            {
                "maximize": "output_tok_s",
                "over": {"batch_size": [1, 4], "draft_length": [0, 5]},
                "method": "bisect",
                "subject_to": ["ttft_s_p50 < 1"],
            },
            "one axis",
        ),
        ({**GOAL, "over": SIZES, "trials": 0}, "trials"),
        ({**GOAL, "over": SIZES, "trails": 3}, "trials"),
    ],
)
def test_a_wrong_search_is_refused_with_what_is_wrong(search, said):
    with pytest.raises((PlanError, ConfigError), match=said):
        run(plan_of(search=search))


def test_a_search_excludes_axes_repeats_and_several_workloads():
    search = {**GOAL, "over": {"draft_length": [0, 5]}}
    for other in ({"axes": [{"product": {"batch_size": [1]}}]}, {"repeats": 2}):
        with pytest.raises(PlanError, match="exclude each other"):
            plan_of(search=search, **other)
    two = [{**plan_of().document()["workloads"][0], "name": name} for name in ("a", "b")]
    with pytest.raises(PlanError, match="one workload"):
        plan_of(search=search, workloads=two)


def outcome(state=TrialState.OK, **values):
    return Outcome(state=state, values=values)


def test_a_verdict_counts_only_valid_trials_and_takes_missing_numbers_for_unmet():
    spec = SearchSpec(
        minimize="ttft_s_p50",
        over={"batch_size": [1, 9]},
        subject_to=["output_tok_s >= 100", "itl_s_p99 <= 0.05"],
    )
    cases = [
        outcome(ttft_s_p50=0.1, output_tok_s=50.0, itl_s_p99=0.01),
        outcome(TrialState.INVALID, ttft_s_p50=0.01, output_tok_s=500.0, itl_s_p99=0.01),
        outcome(ttft_s_p50=0.2, output_tok_s=500.0),
        outcome(TrialState.FAILED),
    ]
    found = verdict(
        spec, [Tried(trial_id=TrialId(str(i)), axes={}, outcome=o) for i, o in enumerate(cases)]
    )
    assert (found.tried, found.sound, found.best) == (4, 2, None)
    assert found.met == {"output_tok_s >= 100": 1, "itl_s_p99 <= 0.05": 1}
    assert found.nearest.trial_id == "0"
    good = Tried(
        trial_id=TrialId("g"),
        axes={},
        outcome=outcome(ttft_s_p50=0.3, output_tok_s=100.0, itl_s_p99=0.05),
    )
    assert verdict(spec, [good]).best is good
    assert verdict(spec, []).nearest is None


def test_a_limit_says_how_far_beyond_it_a_value_is():
    assert limit(" ttft_s_p50<=0.5 ").excess(0.75) == pytest.approx(0.5)
    assert limit("output_tok_s >= 200").excess(150) == pytest.approx(0.25)
    assert limit("a <= 0").excess(2) == 2
    assert str(limit("itl_s_p99<=5e-2")) == "itl_s_p99 <= 0.05"


def test_a_search_is_told_in_a_sentence():
    assert search_words(search_plan(trials=9).search) == (
        "maximise output_tok_s over batch_size 1 to 40 where itl_s_mean <= 0.0021, "
        "in at most 9 trials by bisect"
    )
