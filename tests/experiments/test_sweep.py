import sys
from types import SimpleNamespace

import pytest

from experiments.clock import VirtualClock
from experiments.nvidia import NvidiaReader
from experiments.observe import HostObserver, NoObserver
from experiments.plan import load_plan
from experiments.records import TrialState
from experiments.sweep import estimate_s, planned, run
from experiments.targets.factory import target_factory
from experiments.targets.simulated import SimulatedProfile, SimulatedTarget

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


def test_each_engine_configuration_starts_once_a_pass_and_every_engine_is_closed():
    _, factory, records = sweep(repeats=2)
    assert len(list(records)) == 12
    assert factory.opened == factory.closed
    assert 3 <= factory.opened <= 4  # a pass may begin with the engine that ended the last one


def test_resume_runs_what_is_not_done_and_nothing_else():
    plan, _, records = sweep()
    stored = [next(records).trial_id for _ in range(4)]
    records.close()
    clock = VirtualClock()
    rest = run(plan, Counting(clock), done=set(stored), clock=clock, observer=NoObserver())
    ids = [record.trial_id for record in rest]
    assert len(ids) == 2
    assert set(ids) | set(stored) == {t.trial_id for t in planned(plan, Counting(clock))}
    done = run(plan, Counting(clock), done={*ids, *stored}, clock=clock, observer=NoObserver())
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
    assert "batch size 4" in found[3].reason


def test_another_configuration_is_not_skipped_for_it():
    _, _, records = sweep({"simulation": {"capacity": 3}})
    states = [(r.point.axes["batch_size"], r.state) for r in records]
    assert sorted(state for size, state in states if size == 4) == [TrialState.FAILED] * 2


def test_the_order_of_trials_does_not_change_their_results():
    # pegainfer-project/pegainfer 697
    one = {r.trial_id: r.metrics["output_tok_s"].value for r in sweep()[2]}
    other = {r.trial_id: r.metrics["output_tok_s"].value for r in sweep(order="as_written")[2]}
    assert one == pytest.approx(other)


def test_the_forecast_counts_trials_and_engine_starts():
    plan, factory, _ = sweep()
    assert estimate_s(plan, planned(plan, factory)) == pytest.approx(6 * 1.2 + 2 * 5.0)


def test_the_host_is_watched_while_a_trial_runs():
    plan = load_plan({**BASE, "protocol": {"name": "quick", "measured_s": 0.3}})
    observer = HostObserver(interval_s=0.05)
    (record,) = run(plan, target_factory(plan), observer=observer)
    assert record.state is TrialState.OK
    assert record.metrics["memory_peak_bytes"].value > 1e6
    assert record.metrics["cpu_percent"].n >= 1
    assert record.metrics["energy_j_token"].value is None
    times = [sample.time_s for sample in record.telemetry]
    assert times == sorted(times)
    assert times[0] <= record.window_s[0]
    assert times[-1] >= record.window_s[1]


class FakeNvml:
    """Four devices that tell their counters; handles are UUIDs."""

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM = 1
    uuids = tuple(f"GPU-{i}" for i in range(4))

    def __getattr__(self, name):
        return lambda *_: 1000

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid not in self.uuids:
            raise self.NVMLError("not found")
        return uuid

    def nvmlDeviceGetIndex(self, handle):
        return self.uuids.index(handle)

    def nvmlDeviceGetMemoryInfo(self, handle):
        return SimpleNamespace(used=5)


def test_only_the_devices_of_the_target_are_read(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    reader = NvidiaReader.find(["GPU-3", "GPU-1"])
    assert [(r.index, r.energy_j) for r in reader.read()] == [(3, 1.0), (1, 1.0)]
    assert NvidiaReader.find(["GPU-9"]) is None
