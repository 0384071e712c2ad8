"""What DEEPINFER_* variables give to a plan: read once, then part of the plan."""

from __future__ import annotations

from collections.abc import Mapping

from engine.config import configure
from engine.environment import read_fields
from experiments.arms import OURS, Arm
from experiments.plan import Plan, load_plan


def given_by(plan: Plan, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Engine field -> the variable that sets it, of those that the plan leaves open.

    None of a locked plan: it is as it was when it was stored. None for an engine that is not
    ours. `environ` None reads the process environment. ConfigError names a variable that is
    unknown or whose value is out of range.
    """
    ours = _ours(plan)
    if plan.locked or not ours:
        return {}
    configure({"model": "checked below with the plan's own"}, environ)
    found = read_fields(environ).variables
    return {
        field: variable
        for field, variable in found.items()
        if any(field not in {*arm.engine, *plan.varied} for arm in ours.values())
    }


def locked(plan: Plan, environ: Mapping[str, str] | None = None) -> Plan:
    """The plan with what the environment gives written into it; reads no environment again."""
    values = read_fields(environ).values
    given = {field: values[field] for field in given_by(plan, environ)}
    document = plan.document()
    if not plan.arms:
        return load_plan({**document, "engine": {**given, **plan.engine}, "locked": True})
    for name, arm in _ours(plan).items():
        document["arms"][name]["engine"] = {**given, **arm.engine}
    return load_plan({**document, "locked": True})


def _ours(plan: Plan) -> dict[str | None, Arm]:
    """The arms that run our own engine, or a simulation of it."""
    return {name: arm for name, arm in plan.all_arms.items() if arm.target in OURS}
