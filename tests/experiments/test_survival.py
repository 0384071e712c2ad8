"""Engines that die, find no room or are asked to stop: what is tried again, and what never."""

import dataclasses

import pytest

from experiments.casebook import ENGINE_ROOM, MOST_DEATHS
from experiments.clock import VirtualClock
from experiments.errors import (
    PlanError,
    TargetCapacityError,
    TargetError,
    TargetRefusedError,
    WorkloadError,
)
from experiments.forecast import Forecast, Pace
from experiments.records import FailureKind, TrialState
from experiments.retries import ATTEMPTS, failure_kind
from experiments.sweep import Supervision
from experiments.watch import Activity, Stopped, Watch
from tests.fakes.sweeps import RuledTarget, Rules, plan_of, sweep, told_by

SIZES = [{"product": {"batch_size": [1, 2, 4, 8]}}]


def draft(length):
    """A rule that holds for one draft length."""
    return lambda engine, *_: engine["draft_length"] == length


def test_a_crash_is_tried_once_more_on_a_fresh_engine_and_both_attempts_are_kept():
    rules = Rules(dies=lambda *_: True, deaths_left=1)
    (record,) = sweep(plan_of(), rules)
    assert (record.state, record.attempts, record.failure) == (TrialState.OK, 2, None)
    assert "attempt 1: the engine died with 1 in flight" in record.engine_log
    assert rules.opened == rules.closed == 2


def test_what_dies_twice_is_a_failed_record_with_its_reason():
    # ggml-org/llama.cpp 22815
    rules = Rules(dies=lambda *_: True)
    (record,) = sweep(plan_of(), rules)
    assert (record.state, record.attempts) == (TrialState.FAILED, 2)
    assert record.failure is FailureKind.CRASH
    assert record.metrics == {}
    assert "died" in record.reason


def test_a_configuration_that_keeps_dying_is_left_and_the_sweep_goes_on():
    # IBM/ado 772: all later points scored 0 after a crash.
    blocks = [{"product": {"draft_length": [5, 0], "batch_size": [1, 2, 4, 8]}}]
    rules = Rules(dies=draft(5))
    found = list(sweep(plan_of(axes=blocks, order="as_written", repeats=2), rules))
    lost = [record for record in found if record.point.axes["draft_length"] == 5]
    states = [record.state for record in lost]
    assert states == [TrialState.FAILED] * 2 + [TrialState.SKIPPED] * 6
    assert f"died {MOST_DEATHS + 1} times in a row" in lost[2].reason
    assert all(r.state is TrialState.OK for r in found if r not in lost)
    assert rules.opened == rules.closed == 4 + 1


def test_deaths_that_are_not_in_a_row_stop_nothing():
    rules = Rules(dies=lambda _, flying: flying >= 4)
    blocks = [{"product": {"batch_size": [4, 1, 8, 2]}}]
    found = list(sweep(plan_of(axes=blocks, order="as_written", repeats=2), rules))
    assert {r.state for r in found if r.point.axes["batch_size"] < 4} == {TrialState.OK}
    assert {r.state for r in found if r.point.axes["batch_size"] >= 4} == {TrialState.FAILED}


def test_what_found_no_room_is_never_tried_again_nor_anything_larger_in_any_pass():
    # lablup/mlxcel 807
    rules = Rules(capacity=lambda _: 3)
    found = list(sweep(plan_of(axes=SIZES, order="as_written", repeats=3), rules))
    by_size = {n: [r.state for r in found if r.point.axes["batch_size"] == n] for n in (1, 2, 4, 8)}
    assert by_size[1] == by_size[2] == [TrialState.OK] * 3
    assert by_size[4] == [TrialState.FAILED] + [TrialState.SKIPPED] * 2
    assert by_size[8] == [TrialState.SKIPPED] * 3


def test_a_resumed_sweep_remembers_what_found_no_room():
    plan = plan_of(axes=SIZES, order="as_written")
    first = sweep(plan, Rules(capacity=lambda _: 3))
    stored = [next(first) for _ in range(3)]
    rules = Rules()
    (record,) = sweep(plan, rules, told=told_by(stored))
    assert record.state is TrialState.SKIPPED
    assert rules.opened == 0, "nothing larger is launched"


@pytest.mark.parametrize("field", sorted(ENGINE_ROOM - {"replay_keep_tokens"}))
def test_an_engine_that_found_no_room_rules_out_those_that_need_more_of_any_field(field):
    values = {"draft_length": [3, 5, 1], "max_model_len": [512, 1024, 256]}
    middle, larger, smaller = values.get(field, [64, 128, 32])
    blocks = [{"product": {field: [middle, larger, smaller]}}]
    rules = Rules(
        refuses_start=lambda engine: (
            TargetCapacityError("the weights do not fit") if engine[field] >= middle else None
        )
    )
    found = list(sweep(plan_of(axes=blocks, order="as_written"), rules))
    assert [r.state for r in found] == [TrialState.FAILED, TrialState.SKIPPED, TrialState.OK]
    assert found[0].failure is FailureKind.START_CAPACITY
    assert f"{field} {middle}" in found[1].reason
    assert rules.opened == 2


def test_a_configuration_apart_in_anything_else_is_tried():
    blocks = [{"product": {"cache_format": ["plain", "released"], "batch_size": [4, 8]}}]
    rules = Rules(capacity=lambda engine: 3 if engine["cache_format"] == "plain" else None)
    found = list(sweep(plan_of(axes=blocks, order="as_written"), rules))
    assert [r.state for r in found][2:] == [TrialState.OK] * 2


def test_longer_prompts_need_more_room_and_fewer_tokens_do_not():
    blocks = [{"zip": {"prompt_tokens": [16, 32, 8], "batch_size": [4, 4, 4]}}]
    found = list(sweep(plan_of(axes=blocks, order="as_written"), Rules(capacity=lambda _: 3)))
    assert [r.state for r in found] == [TrialState.FAILED, TrialState.SKIPPED, TrialState.FAILED]


@pytest.mark.parametrize(
    ("error", "starting", "kind"),
    [
        (TargetCapacityError("x"), False, FailureKind.CAPACITY),
        (TargetCapacityError("x"), True, FailureKind.START_CAPACITY),
        (TargetRefusedError("x"), False, FailureKind.REFUSED),
        (WorkloadError("x"), False, FailureKind.REFUSED),
        (PlanError("x"), True, FailureKind.START),
        (TargetError("x"), False, FailureKind.CRASH),
        (TargetError("x"), True, FailureKind.START),
    ],
)
def test_every_class_of_error_has_its_place_in_the_table(error, starting, kind):
    assert failure_kind(error, starting=starting) is kind


def test_only_a_crash_is_tried_again():
    assert {kind for kind, times in ATTEMPTS.items() if times > 1} == {FailureKind.CRASH}
    assert set(ATTEMPTS) == set(FailureKind)


def supervision(**fields):
    plan = plan_of()
    return Supervision(forecast=Forecast(plan, Pace(trial_s=1.0, start_s=0.0)), **fields)


def test_a_budget_begins_no_trial_that_would_not_end_within_it():
    clock = VirtualClock()
    watched = supervision(budget_s=0.2)
    watched.forecast.learn(next(iter(_known())), 0.09)  # a trial takes about 0.07 s here
    found = list(sweep(plan_of(axes=SIZES, repeats=9), supervision=watched, clock=clock))
    assert 1 <= len(found) < 36
    assert clock.now_ns() / 1e9 <= 0.2
    assert watched.watch.snapshot().stopped is Stopped.BUDGET


def _known():
    from experiments.sweep import planned

    return planned(plan_of(), lambda: RuledTarget(Rules(), VirtualClock()))


def test_a_budget_that_is_too_small_for_one_trial_measures_none():
    watched = supervision(budget_s=0.5)
    assert list(sweep(plan_of(), supervision=watched)) == []
    assert watched.watch.snapshot().stopped is Stopped.BUDGET


def test_a_stop_that_was_asked_for_ends_after_the_trial_in_flight():
    watched = supervision()
    records = sweep(plan_of(axes=SIZES), supervision=watched)
    next(records)
    watched.watch.ask_stop(Stopped.REQUEST)
    assert list(records) == []
    assert watched.watch.snapshot().stopped is Stopped.REQUEST


class Asking(Watch):
    """Asks for the trial in flight to be skipped when it has served a second."""

    def counts(self, second):
        super().counts(second)
        current = self.snapshot().current
        if current is not None and current.axes == {"batch_size": 2}:
            self.ask_skip(current.trial_id)


def test_a_trial_that_is_to_be_skipped_is_given_up_and_the_others_go_on():
    protocol = {"name": "quick", "measured_s": 3.0, "warm_up_per_slot": 0}
    rules, watched = Rules(), supervision(watch=Asking())
    found = list(
        sweep(
            plan_of(axes=SIZES, order="as_written", protocol=protocol),
            rules,
            supervision=watched,
        )
    )
    assert [r.state for r in found] == [TrialState.OK, TrialState.SKIPPED] + [TrialState.OK] * 2
    assert found[1].reason == "skipped on request while it was measured"
    assert rules.opened == rules.closed == 2, "what was in flight may not meet the next trial"


def test_a_second_interrupt_cancels_the_trial_records_it_and_then_ends_the_sweep():
    class Interrupted(Watch):
        def counts(self, second):
            raise KeyboardInterrupt

    watched, rules = supervision(watch=Interrupted()), Rules()
    protocol = {"name": "quick", "measured_s": 1.0, "warm_up_per_slot": 0}
    records = sweep(plan_of(axes=SIZES, protocol=protocol), rules, supervision=watched)
    record = next(records)
    assert record.state is TrialState.CANCELLED
    assert "interrupted" in record.reason
    assert rules.closed == 1
    with pytest.raises(KeyboardInterrupt):
        next(records)
    assert watched.watch.snapshot().stopped is Stopped.INTERRUPT


def test_what_is_going_on_can_be_read_while_it_does():
    seen = []

    class Looking(Watch):
        def counts(self, second):
            super().counts(second)
            seen.append(self.snapshot())

    watched = supervision(watch=Looking())
    protocol = {"name": "quick", "measured_s": 2.0, "warm_up_per_slot": 0}
    (record,) = sweep(plan_of(protocol=protocol), supervision=watched)
    current = seen[-1].current
    assert current.trial_id == record.trial_id
    assert current.activity is Activity.SERVING
    assert current.attempt == 1
    counted = {second.second: second for second in current.seconds}
    assert sorted(counted)[:2] == [0, 1]
    chunks = [chunk for r in record.requests for chunk in r.chunks]
    for number in (0, 1):
        came = sum(c.tokens for c in chunks if number <= c.time_s < number + 1)
        assert counted[number].output_tokens == pytest.approx(came, abs=4)
        assert counted[number].ttft_s == pytest.approx(0.020, rel=1e-6)
        assert counted[number].in_flight <= 1
    ended = watched.watch.snapshot()
    assert (ended.current, ended.stopped, ended.time_left_s) == (None, Stopped.FINISHED, 0.0)
    assert ended.events[-1].trial_id == record.trial_id


def test_a_forecast_learns_from_what_it_sees():
    forecast = Forecast(plan_of())
    assert forecast.trial_s() == pytest.approx(1.02)
    trial = _known()[0]
    forecast.learn(trial, 4.0)
    forecast.learn(dataclasses.replace(trial, point=dataclasses.replace(
        trial.point, axes={"batch_size": 9})), 8.0)  # fmt: skip
    forecast.learn(trial, 0.0)
    assert forecast.trial_s(trial) == 4.0
    assert forecast.trial_s() == 6.0
    forecast.learn_start(30.0)
    assert forecast.start_s() == 30.0
