"""The axes of a plan: what they may be called, and the combinations that they span."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from engine.config import describe_fields
from experiments.border import brief, nearest
from experiments.errors import PlanError
from experiments.plan import Plan
from experiments.records import AxisValue
from experiments.workload_specs import WorkloadSpec

Model = TypeVar("Model", bound=BaseModel)

MAX_POINTS = 100_000
WORKLOAD_AXIS = "workload"

ROADMAP = {
    "tp": "tensor parallelism",
    "tensor_parallel_size": "tensor parallelism",
    "ep": "expert parallelism",
    "expert_parallel_size": "expert parallelism",
    "cp": "context parallelism",
    "context_parallel_size": "context parallelism",
    "pp": "pipeline parallelism",
    "pipeline_parallel_size": "pipeline parallelism",
    "attention_dp": "data-parallel attention",
    "eplb": "expert load balancing",
    "verify_policy": "confidence-scheduled verification",
    "verify_confidence": "confidence-scheduled verification",
    "draft_varlen": "drafts of varying length",
    "batch_invariant": "batch-invariant kernels",
    "cuda_graph": "captured graphs",
    "prefix_cache": "the prefix cache",
    "disaggregation": "disaggregated prefill and decode",
    "overlap_schedule": "overlapped scheduling",
}
"""Axes that will exist: refused by name, so that no sweep believes it varied them."""


def axis_names(plan: Plan) -> set[str]:
    """Every name that an axis of this plan may have."""
    return {
        WORKLOAD_AXIS,
        *engine_names(),
        *fields_of(plan.load),
        *(name for spec in plan.workloads for name in fields_of(spec)),
    }


def fields_of(model: BaseModel) -> set[str]:
    """The fields of a load or workload that an axis may vary."""
    return set(type(model).model_fields) - {"kind", "name"}


def engine_names() -> set[str]:
    """The fields of the engine configuration."""
    return {f.name for f in describe_fields()}


def check_names(plan: Plan) -> None:
    """PlanError for an axis or engine field that does not exist, or that is given twice."""
    known = axis_names(plan)
    _check_fixed_fields(plan, engine_names())
    seen: set[str] = set()
    for block in plan.axes:
        for name in block.axes:
            if name not in known:
                _refuse_axis(name, known)
            if name in seen:
                raise PlanError("is given by two blocks", where=f"axes: {name}", remedy="Keep one.")
            if name in plan.engine:
                raise PlanError(
                    "is both fixed under engine and an axis",
                    where=f"axes: {name}",
                    remedy="Keep one of the two.",
                )
            seen.add(name)


def combinations(plan: Plan) -> list[dict[str, AxisValue]]:
    """Axis values of every combination; several workloads are an axis of their own."""
    _refuse_too_many(plan)
    blocks = [_rows(block.product, block.zip) for block in plan.axes]
    named = {name for block in plan.axes for name in block.axes}
    if WORKLOAD_AXIS not in named and len(plan.workloads) > 1:
        blocks.append([{WORKLOAD_AXIS: spec.name} for spec in plan.workloads])
    merged = [
        {name: value for part in parts for name, value in part.items()}
        for parts in itertools.product(*blocks)
    ]
    return merged or [{}]


def _refuse_too_many(plan: Plan) -> None:
    """Count before anything is spread out: the counts cost no memory."""
    named = {name for block in plan.axes for name in block.axes}
    points = 1 if WORKLOAD_AXIS in named else len(plan.workloads)
    for block in plan.axes:
        lengths = [len(values) for values in block.axes.values()]
        points *= math.prod(lengths) if block.product is not None else lengths[0]
    if points > MAX_POINTS:
        raise PlanError(
            f"has {points} points, more than {MAX_POINTS}",
            where="axes",
            remedy="Sweep fewer values.",
        )
    if points * plan.repeat_count > MAX_POINTS:
        raise PlanError(
            f"asks for {points * plan.repeat_count} trials, more than {MAX_POINTS}",
            where="repeats",
            remedy=f"Use at most {MAX_POINTS // points} repeats, or sweep fewer values.",
        )


def _rows(
    product: dict[str, list[AxisValue]] | None, zipped: dict[str, list[AxisValue]] | None
) -> list[dict[str, AxisValue]]:
    lists = product if product is not None else (zipped or {})
    tuples = (
        itertools.product(*lists.values())
        if product is not None
        else zip(*lists.values(), strict=True)
    )
    return [dict(zip(lists, values, strict=True)) for values in tuples]


def picked_workload(plan: Plan, axes: Mapping[str, AxisValue]) -> WorkloadSpec:
    """The workload that a point names; the first where it names none."""
    by_name = {spec.name: spec for spec in plan.workloads}
    wanted = axes.get(WORKLOAD_AXIS, plan.workloads[0].name)
    if wanted not in by_name:
        raise PlanError(
            f"names the workload {wanted!r}, which the plan does not have",
            where=f"axes: {WORKLOAD_AXIS}",
            remedy=nearest(str(wanted), by_name),
        )
    return by_name[str(wanted)]


def with_field(model: Model, name: str, value: AxisValue) -> Model:
    """The same load or workload with one field set by an axis; PlanError if it has none such."""
    label = getattr(model, "name", None) or getattr(model, "kind", "")
    if name not in fields_of(model):
        raise PlanError(
            f"is no field of {label!r}",
            where=f"axes: {name}",
            remedy=f"Its fields are {', '.join(sorted(fields_of(model)))}.",
        )
    try:
        return type(model).model_validate({**model.model_dump(), name: value})
    except ValidationError as error:
        message = error.errors()[0]["msg"]
        raise PlanError(
            f"{message[0].lower()}{message[1:]}, got {brief(value)}", where=f"axes: {name}"
        ) from error


def _check_fixed_fields(plan: Plan, known: set[str]) -> None:
    for name in plan.engine:
        if name in known:
            continue
        if name in ROADMAP:
            _refuse_roadmap(name, "engine")
        raise PlanError(
            "is no field of the engine configuration",
            where=f"engine: {name}",
            remedy=nearest(name, known),
        )


def _refuse_axis(name: str, known: set[str]) -> NoReturn:
    if name in ROADMAP:
        _refuse_roadmap(name, "axes")
    raise PlanError("is no axis", where=f"axes: {name}", remedy=nearest(name, known))


def _refuse_roadmap(name: str, place: str) -> NoReturn:
    raise PlanError(
        f"this engine does not have {ROADMAP[name]} yet",
        where=f"{place}: {name}",
        remedy="Take it out of the plan.",
    )
