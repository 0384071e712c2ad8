"""Arms that a run leaves out: those that are named, and optional ones that are not there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from experiments.arms import ARM_AXIS
from experiments.errors import MissingProgramError, PlanError, TargetError
from experiments.plan import Plan, load_plan
from kernels.near_names import nearest

WHERE = "--without"


def without_arms(plan: Plan, names: Collection[str]) -> Plan:
    """The plan without those arms, their points among them.

    PlanError for a name that is none of its arms, and where no arm or no point is left.
    """
    for name in names:
        if name not in plan.arms:
            raise PlanError(f"{name!r} is no arm", where=WHERE, remedy=nearest(name, plan.arms))
    if not names:
        return plan
    if set(names) >= set(plan.arms):
        raise PlanError("leaves no arm", where=WHERE, remedy="Name fewer of them.")
    document = plan.document()
    arms = {name: arm for name, arm in document["arms"].items() if name not in names}
    axes = [_block(block, names) for block in document["axes"]]
    reference = plan.reference if plan.reference in arms else None
    return load_plan({**document, "arms": arms, "axes": axes, "reference": reference})


def present(plan: Plan) -> tuple[Plan, Mapping[str, str]]:
    """The plan without optional arms that cannot start here, and why each of them cannot."""
    from experiments.targets.factory import check_arm

    absent: dict[str, str] = {}
    for name, arm in plan.arms.items():
        if arm.optional:
            try:
                check_arm(plan.arm_of(name), plan.clients)
            except (MissingProgramError, TargetError) as error:
                absent[name] = str(error)
    return without_arms(plan, absent), absent


def _block(block: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """A block of axes without the values, or the places of a zip, of those arms."""
    kind = "product" if block["product"] is not None else "zip"
    axes: dict[str, list[Any]] = block[kind]
    arms = axes.get(ARM_AXIS)
    if arms is None:
        return dict(block)
    kept = [place for place, arm in enumerate(arms) if arm not in names]
    shrunk = {name: [values[place] for place in kept]
              for name, values in axes.items() if kind == "zip" or name == ARM_AXIS}  # fmt: skip
    return {**block, kind: {**axes, **shrunk}}
