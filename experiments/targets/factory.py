"""Which target a plan means."""

from __future__ import annotations

from functools import partial

from experiments.arms import Arm
from experiments.clock import Clock, SystemClock
from experiments.plan import Plan
from experiments.targets.base import Target, TargetFactory
from experiments.targets.simulated import SimulatedProfile, SimulatedTarget

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
        if arm.target not in _OF_THIS_PROCESS:
            _check(arm, _arm_factory(arm, plan.clients, SystemClock())())


def _check(arm: Arm, target: Target) -> None:
    # Here, since measuring our own engine needs no HTTP client.
    from experiments.targets.openai_http import HttpTarget
    from experiments.targets.peer_target import PeerTarget
    from experiments.targets.server import ServerTarget

    if isinstance(target, HttpTarget):
        target.greet()
    elif isinstance(target, PeerTarget | ServerTarget):
        target.check(arm.engine)


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
