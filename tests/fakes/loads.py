"""Loads put on the simulated engine, on a clock that moves only when told to."""

from collections.abc import Sequence

from experiments.clock import VirtualClock
from experiments.observe import NoObserver
from experiments.plan import load_plan
from experiments.sweep import planned, run
from experiments.targets.base import Received
from experiments.targets.factory import target_factory
from experiments.targets.simulated import SimulatedTarget
from experiments.targets.simulated_profile import SimulatedProfile

WORKLOAD = {"name": "s", "kind": "synthetic", "prompt_tokens": 8, "output_tokens": 25}


def plan_of(**fields):
    return load_plan({"name": "t", "target": "simulated", "workloads": [WORKLOAD], **fields})


def trials(**fields):
    plan = plan_of(**fields)
    return planned(plan, target_factory(plan, VirtualClock()), code_version="v1")


def measured(make_target=None, **fields):
    """The record of the only trial of a plan; `make_target` puts another engine in place."""
    plan, clock = plan_of(**fields), VirtualClock()
    factory = (lambda: make_target(clock)) if make_target else target_factory(plan, clock)
    (record,) = run(plan, factory, clock=clock, observer=NoObserver())
    return record


def values(record):
    return {name: metric.value for name, metric in record.metrics.items()}


def asked(record):
    return [r for r in record.requests if not r.warm_up]


class FreezingTarget(SimulatedTarget):
    """Serves as simulated, but for one poll that takes `freeze_s`: nobody is served meanwhile."""

    def __init__(self, clock, *, at_request=100, freeze_s=5.0, **profile):
        super().__init__(SimulatedProfile(**profile), clock)
        self._own_clock = clock
        self._freeze_s = freeze_s
        self._left = at_request

    def submit(self, request):
        self._left -= 1
        super().submit(request)

    def poll(self, timeout_s: float) -> Sequence[Received]:
        if self._left <= 0 and self._freeze_s:
            self._own_clock.sleep(self._freeze_s)
            self._freeze_s = 0.0
        return super().poll(timeout_s)
