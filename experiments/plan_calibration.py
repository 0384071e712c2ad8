"""The load generator under the loads of a plan, without the server that the plan names."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from experiments.calibration import calibrate
from experiments.clients import ClientPool
from experiments.clock import SystemClock
from experiments.errors import PlanError
from experiments.gate_limits import GateLimits
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


def shortfalls(found: Calibration, limits: GateLimits) -> tuple[str, ...]:
    """Why a trial of this load would rest on its client, by the gates' limits; () where none."""
    said = (_rate(found, limits), _lag(found, limits), _cpu(found, limits))
    return tuple(words for words in said if words is not None)


def _rate(found: Calibration, limits: GateLimits) -> str | None:
    """One request may hang over the edge of the window."""
    due, sent, limit = found.due_requests, found.sent_requests, limits.rate_shortfall
    if limit is None or not due or sent is None or sent + 1 >= due * (1 - limit):
        return None
    return f"{sent} of {due} requests that were due were sent ({sent / due:.1%})"


def _lag(found: Calibration, limits: GateLimits) -> str | None:
    late_s, limit_s = found.lag_p99_s, limits.client_lag_s
    if limit_s is None or late_s is None or late_s <= limit_s:
        return None
    return f"sent {1e3 * late_s:.1f} ms late at the 99th percentile (limit {1e3 * limit_s:g} ms)"


def _cpu(found: Calibration, limits: GateLimits) -> str | None:
    percent, limit = found.client_cpu_percent, limits.client_cpu_percent
    if limit is None or percent is None or percent <= limit:
        return None
    return f"the busiest client took {percent:.0f} % of a core (limit {limit:g} %)"
