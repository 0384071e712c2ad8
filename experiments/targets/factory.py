"""Which target a plan means."""

from __future__ import annotations

from experiments.clock import Clock, SystemClock
from experiments.plan import Plan
from experiments.targets.base import Target, TargetFactory
from experiments.targets.simulated import SimulatedProfile, SimulatedTarget


def target_factory(plan: Plan, clock: Clock | None = None) -> TargetFactory:
    """Makes fresh targets for the plan. The engine is imported when the first one is made."""
    used = clock if clock is not None else SystemClock()
    if plan.target == "simulated":
        profile = SimulatedProfile.from_mapping(plan.simulation)
        return lambda: SimulatedTarget(profile, used)
    if plan.http is not None:
        from experiments.targets.openai_http import http_factory

        return http_factory(plan.http, plan.clients)
    return _in_process


def _in_process() -> Target:
    from experiments.targets.in_process import InProcessTarget

    return InProcessTarget()
