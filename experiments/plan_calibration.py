"""The load generator under the loads of a plan, without the server that the plan names."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from experiments.calibration import calibrate
from experiments.clients import ClientPool
from experiments.clock import SystemClock
from experiments.errors import PlanError
from experiments.plan import Plan
from experiments.records import Calibration
from experiments.space import PlannedTrial
from experiments.sweep import planned
from experiments.targets.factory import target_factory
from experiments.trial import load_shape, measured_phase


def plan_calibrations(plan: Plan) -> Iterator[tuple[PlannedTrial, Calibration]]:
    """One trial of each load shape of the plan, in order, with what its clients do by themselves.

    PlanError for a plan whose engine runs in this process: it has no client of its own.
    """
    if plan.http is None:
        raise PlanError(
            "an engine in this process has no client of its own to calibrate",
            where=f"plan {plan.name}: target",
            remedy="Calibrate a plan with target: http, or none for the built-in one.",
        )
    from experiments.targets.openai_http import client_factory

    firsts: dict[str, PlannedTrial] = {}
    for trial in planned(plan, target_factory(plan)):
        firsts.setdefault(load_shape(trial), trial)
    pool = ClientPool(client_factory(plan.http), plan.clients)
    try:
        for trial in firsts.values():
            yield trial, calibrate(pool, partial(measured_phase, trial, plan), SystemClock())
    finally:
        pool.close()
