"""What changes around a run while it is measured makes the trials after it invalid."""

import itertools

from experiments.clock import VirtualClock
from experiments.observe import NoObserver
from experiments.plan import load_plan
from experiments.records import TrialState
from experiments.sweep import planned, run
from experiments.targets.factory import target_factory
from experiments.trial import Bench, run_trial
from workbench.surroundings import Surroundings, differences, present

BEFORE = {
    "driver": "570.1", "cpu_governor": "performance", "code_version": "0.1.0+a",
    "packages": {"torch": "2.9", "plotly": "6.0"},
    "devices": [{"uuid": "GPU-0", "power_limit_w": 700.0, "temperature_c": 40}],
    "load_average": [0.1],
}  # fmt: skip


def changed(**fields):
    return {**BEFORE, **fields}


def test_what_load_moves_is_no_change_and_what_a_setting_holds_is():
    moved = changed(
        load_average=[9.0],
        devices=[{"uuid": "GPU-0", "power_limit_w": 700.0, "temperature_c": 80}],
        packages={"torch": "2.9", "plotly": "7.0"},
    )
    assert differences(BEFORE, moved) == ()
    told = differences(
        BEFORE,
        changed(
            driver="580.2",
            packages={"torch": "2.10"},
            devices=[{"uuid": "GPU-0", "power_limit_w": 500.0}],
        ),
    )
    assert told == (
        "driver changed (570.1 to 580.2)",
        "torch changed (2.9 to 2.10)",
        "power_limit_w of device 0 changed (700.0 to 500.0)",
    )


def test_silence_on_one_side_is_no_change():
    assert differences(BEFORE, {"devices": None, "driver": None}) == ()
    assert differences({}, BEFORE) == ()


def test_this_host_stays_as_it_is_for_a_moment():
    assert present()["packages"]
    assert Surroundings().changes() == ()


def plan(**fields):
    workload = {"name": "s", "kind": "synthetic", "prompt_tokens": 8, "output_tokens": 5}
    return load_plan({"name": "t", "target": "simulated", "workloads": [workload], **fields})


def measured(asked, changes):
    clock = VirtualClock()
    bench = Bench(plan=asked, clock=clock, observer=NoObserver(), changes=changes)
    factory = target_factory(asked, clock)
    (trial,) = planned(asked, factory)
    target = factory()
    target.open(trial.point.engine)
    return run_trial(trial, target, bench)


def gate(record):
    return next((g for g in record.gates if g.name == "environment"), None)


def test_a_power_limit_lowered_during_the_run_is_named_by_the_gate():
    after = changed(devices=[{"uuid": "GPU-0", "power_limit_w": 500.0}])
    read = itertools.chain([BEFORE], itertools.repeat(after))
    record = measured(plan(), Surroundings(lambda: next(read)).changes)
    assert record.state is TrialState.INVALID
    assert record.reason == "environment: power_limit_w of device 0 changed (700.0 to 500.0)"


def test_the_gate_passes_where_nothing_changed_and_is_silent_where_nobody_watches():
    assert gate(measured(plan(), Surroundings(lambda: BEFORE).changes)).passed
    clock = VirtualClock()
    asked = plan()
    (record,) = run(asked, target_factory(asked, clock), clock=clock, observer=NoObserver())
    assert gate(record) is None
    off = plan(gates={"environment_changes": None})
    assert gate(measured(off, lambda: ("anything",))) is None
