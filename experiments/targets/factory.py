"""Which target a plan means."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Protocol, runtime_checkable

from experiments.arms import Arm
from experiments.clock import Clock, SystemClock
from experiments.plan import Plan
from experiments.records import AxisValue
from experiments.targets.base import Target, TargetFactory
from experiments.targets.simulated import SimulatedTarget
from experiments.targets.simulated_profile import SimulatedProfile

_OF_THIS_PROCESS = ("in_process", "simulated")


def target_factory(plan: Plan, clock: Clock | None = None) -> TargetFactory:
    """Makes fresh targets for the plan. The engine is imported when the first one is made."""
    used = clock if clock is not None else SystemClock()
    factories = {name: _arm_factory(arm, plan.clients, used) for name, arm in plan.all_arms.items()}
    if not plan.arms:
        return factories[None]
    from experiments.targets.arms import ArmsTarget

    return partial(ArmsTarget, {str(name): made for name, made in factories.items()})


def check_programs(plan: Plan) -> None:
    """MissingProgramError for what the plan starts and this host lacks; TargetError for a
    server that should run already and does not answer."""
    for arm in plan.all_arms.values():
        check_arm(arm, plan.clients)


def check_arm(arm: Arm, clients: int = 1) -> None:
    """The same of one arm."""
    if arm.target in _OF_THIS_PROCESS:
        return
    target = _arm_factory(arm, clients, SystemClock())()
    if isinstance(target, _Greets):
        target.greet()
    elif isinstance(target, _Checks):
        target.check(arm.engine)


@runtime_checkable
class _Greets(Protocol):
    """A target whose server runs already."""

    def greet(self) -> object: ...


@runtime_checkable
class _Checks(Protocol):
    """A target that starts a program."""

    def check(self, engine: Mapping[str, AxisValue]) -> None: ...


def _arm_factory(arm: Arm, clients: int, clock: Clock) -> TargetFactory:
    if arm.target == "simulated":
        profile = SimulatedProfile.from_mapping(arm.simulation)
        return lambda: SimulatedTarget(profile, clock)
    if arm.http is not None:
        from experiments.targets.openai_http import http_factory

        return http_factory(arm.http, clients)
    if arm.server is not None:
        from experiments.targets.server import server_factory

        return server_factory(arm.server, clients)
    if arm.target in ("transformers", "vllm"):
        from experiments.targets.peer_target import peer_factory

        return peer_factory(arm.target)
    return _in_process


def _in_process() -> Target:
    from experiments.targets.in_process import InProcessTarget

    return InProcessTarget()
