"""What DEEPINFER_* variables give to a plan: read once, then part of the plan."""

from __future__ import annotations

from collections.abc import Mapping

from engine.config import configure
from engine.environment import read_fields
from experiments.plan import Plan, load_plan


def given_by(plan: Plan, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Engine field -> the variable that sets it, of those that the plan leaves open.

    None of a locked plan: it is as it was when it was stored. None for an engine that is not
    ours. `environ` None reads the process environment. ConfigError names a variable that is
    unknown or whose value is out of range.
    """
    if plan.locked or plan.http is not None:
        return {}
    configure({"model": "checked below with the plan's own"}, environ)
    named = {*plan.engine, *plan.varied}
    found = read_fields(environ).variables
    return {field: variable for field, variable in found.items() if field not in named}


def locked(plan: Plan, environ: Mapping[str, str] | None = None) -> Plan:
    """The plan with what the environment gives written into it; reads no environment again."""
    values = read_fields(environ).values
    given = {field: values[field] for field in given_by(plan, environ)}
    return load_plan({**plan.document(), "engine": {**plan.engine, **given}, "locked": True})
