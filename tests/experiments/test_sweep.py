import copy
import itertools
import time

import pytest

from experiments.clock import VirtualClock
from experiments.forecast import Forecast, Pace
from experiments.observe import HostObserver, NoObserver
from experiments.outcome import outcome_of
from experiments.plan import load_plan
from experiments.records import FailureKind, TrialState
from experiments.sweep import expanded, planned, run
from experiments.targets.factory import target_factory
from experiments.targets.simulated import SimulatedTarget
from experiments.targets.simulated_profile import SimulatedProfile

BASE = {
    "name": "t",
    "target": "simulated",
    "workloads": [{"name": "s", "kind": "synthetic", "prompt_tokens": 8, "output_tokens": 4}],
    "protocol": {"name": "quick", "measured_s": 0.2},
}
SWEPT = [{"product": {"batch_size": [1, 2, 4], "draft_length": [0, 5]}}]


class Counting:
    """A factory that counts how often engines were opened and closed."""

    def __init__(self, clock, simulation=None, fails_to_open=False):
        self.clock = clock
        self.profile = SimulatedProfile.from_mapping(simulation or {})
        self.fails_to_open = fails_to_open
        self.opened = self.closed = 0

    def __call__(self):
        counter = self

        class Target(SimulatedTarget):
            def open(self, engine):
                counter.opened += 1
                if counter.fails_to_open:
                    from experiments.errors import TargetError

                    raise TargetError("no driver")
                return super().open(engine)

            def close(self):
                counter.closed += 1
                super().close()

        return Target(self.profile, self.clock)


def sweep(factory_options=None, **fields):
    plan = load_plan({**BASE, "axes": SWEPT, **fields})
    clock = VirtualClock()
    factory = Counting(clock, **(factory_options or {}))
    return plan, factory, run(plan, factory, clock=clock, observer=NoObserver())


def test_records_come_one_by_one_in_the_planned_order():
    plan, factory, records = sweep()
    expected = [trial.trial_id for trial in planned(plan, factory)]
    first = next(records)
    assert first.trial_id == expected[0]
    assert factory.opened == 1  # nothing of the second block has begun
    assert [first.trial_id, *(r.trial_id for r in records)] == expected


def test_a_record_stays_as_it_came_whatever_is_measured_after_it():
    # vllm-project/guidellm 114: every entry of a report referred to the same object.
    _, _, records = sweep()
    came = [(record, copy.deepcopy(record)) for record in records]
    assert len({record.trial_id for record, _ in came}) == len(came) > 1
    for record, then in came:
        assert record == then
    for one, other in itertools.combinations([record for record, _ in came], 2):
        assert one.metrics is not other.metrics
        assert one.point.axes != other.point.axes


def test_each_engine_configuration_starts_once_a_pass_and_every_engine_is_closed():
    _, factory, records = sweep(repeats=2)
    assert len(list(records)) == 12
    assert factory.opened == factory.closed
    assert 3 <= factory.opened <= 4  # a pass may begin with the engine that ended the last one


def test_resume_runs_what_is_not_done_and_nothing_else():
    plan, _, records = sweep()
    found = [next(records) for _ in range(4)]
    stored = {record.trial_id: outcome_of(record) for record in found}
    records.close()
    clock = VirtualClock()
    rest = run(plan, Counting(clock), done=stored, clock=clock, observer=NoObserver())
    measured = {record.trial_id: outcome_of(record) for record in rest}
    ids = list(measured)
    assert len(ids) == 2
    assert set(ids) | set(stored) == {t.trial_id for t in planned(plan, Counting(clock))}
    done = run(
        plan, Counting(clock), done={**measured, **stored}, clock=clock, observer=NoObserver()
    )
    assert list(done) == []


def test_closing_the_generator_stops_the_engine():
    _, factory, records = sweep()
    next(records)
    records.close()
    assert factory.closed == factory.opened == 1


def test_an_interrupt_between_records_stops_the_engine():
    _, factory, records = sweep()
    next(records)
    with pytest.raises(KeyboardInterrupt):
        records.throw(KeyboardInterrupt)
    assert factory.closed == 1


def test_a_dying_engine_fails_its_trial_and_is_started_again():
    # IBM/ado 772: all later points scored 0 after a crash.
    _, factory, records = sweep({"simulation": {"die_after": 25}})
    found = list(records)
    states = [record.state for record in found]
    assert TrialState.FAILED in states
    assert factory.opened > 2
    assert factory.closed == factory.opened
    for record in found:
        if record.state is TrialState.FAILED:
            assert "died" in record.reason
            assert "event=died" in record.engine_log
            assert record.metrics == {}
        else:
            assert record.state is TrialState.OK


def test_an_engine_that_does_not_start_fails_its_trials_and_is_tried_once():
    _, factory, records = sweep({"fails_to_open": True})
    found = list(records)
    assert [r.state for r in found] == [TrialState.FAILED] * 6
    assert all(r.reason == "no driver" for r in found)
    assert factory.opened == 2  # one try a configuration
    assert factory.closed >= 2


def test_larger_batches_are_skipped_where_a_smaller_one_found_no_room():
    # lablup/mlxcel 807
    blocks = [{"product": {"batch_size": [1, 2, 4, 8]}}]
    _, _, records = sweep({"simulation": {"capacity": 3}}, axes=blocks, order="as_written")
    found = list(records)
    assert [r.state for r in found] == [
        TrialState.OK,
        TrialState.OK,
        TrialState.FAILED,
        TrialState.SKIPPED,
    ]
    assert "room for 3" in found[2].reason
    assert "batch_size 4 already found no room" in found[3].reason
    assert (found[2].failure, found[2].attempts) == (FailureKind.CAPACITY, 1)


def test_what_needs_more_of_everything_is_skipped_too_and_what_needs_less_is_not():
    blocks = [{"product": {"draft_length": [3, 5, 1], "batch_size": [2, 4]}}]
    _, _, records = sweep({"simulation": {"capacity": 3}}, axes=blocks, order="as_written")
    states = {tuple(r.point.axes.values()): r.state for r in records}
    assert {states[(draft, 2)] for draft in (1, 3, 5)} == {TrialState.OK}
    assert states[(3, 4)] is TrialState.FAILED
    assert states[(5, 4)] is TrialState.SKIPPED
    assert states[(1, 4)] is TrialState.FAILED, "shorter drafts may find room"


def test_the_order_of_trials_does_not_change_their_results():
    # pegainfer-project/pegainfer 697
    one = {r.trial_id: r.metrics["output_tok_s"].value for r in sweep()[2]}
    other = {r.trial_id: r.metrics["output_tok_s"].value for r in sweep(order="as_written")[2]}
    assert one == pytest.approx(other)


def test_the_forecast_counts_trials_and_engine_starts():
    plan, factory, _ = sweep()
    agenda = expanded(plan, factory, code_version="v1")
    assert Forecast(plan).total_s(agenda) == pytest.approx(6 * 1.2 + 2 * 5.0)
    measured = Forecast(plan, Pace(trial_s=3.0, start_s=1.0))
    assert measured.total_s(agenda, done=3) == pytest.approx(3 * 3.0 + 1.0)


def test_the_host_is_watched_while_a_trial_runs():
    plan = load_plan({**BASE, "protocol": {"name": "quick", "measured_s": 0.3}})
    observer = HostObserver(interval_s=0.05)
    make = target_factory(plan)

    def watched():
        """The first poll of the measured phase goes on until the host was read in it."""
        target = make()
        plain, read = target.poll, []

        def poll(timeout_s):
            if observer.latest():
                read.append(len(observer._samples))
                while len(observer._samples) < read[0] + 2:
                    time.sleep(0.01)
            return plain(timeout_s)

        target.poll = poll
        return target

    (record,) = run(plan, watched, observer=observer)
    assert record.metrics["memory_peak_bytes"].value > 1e6
    assert record.metrics["cpu_percent"].n >= 1
    assert record.metrics["energy_j_token"].value is None
    times = [sample.time_s for sample in record.telemetry]
    assert times == sorted(times)
    assert times[0] <= record.window_s[0]
    assert times[-1] >= record.window_s[1]
