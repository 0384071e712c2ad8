"""The axes of a plan: what they may be called, and the combinations that they span."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from experiments.arms import ARM_AXIS
from experiments.axis_blocks import MAX_VALUES, AxisBlock
from experiments.border import brief
from experiments.errors import PlanError
from experiments.plan import Plan
from experiments.records import AxisValue
from experiments.targets.http_spec import DECLARE, NOT_OURS
from experiments.workload_specs import WorkloadSpec
from kernels.near_names import nearest

Model = TypeVar("Model", bound=BaseModel)

MAX_POINTS = MAX_VALUES
WORKLOAD_AXIS = "workload"

_TP, _EP, _CP, _PP = (f"{kind} parallelism" for kind in ("tensor", "expert", "context", "pipeline"))
_KERNELS = "a choice of kernels"
_CACHE = "the prefix cache"
_DETERMINISM = "batch-invariant kernels"

ROADMAP = {
    "tp": _TP,
    "tensor_parallel_size": _TP,
    "ep": _EP,
    "expert_parallel_size": _EP,
    "cp": _CP,
    "context_parallel_size": _CP,
    "pp": _PP,
    "pipeline_parallel_size": _PP,
    "attention_dp": "data-parallel attention",
    "eplb": "expert load balancing",
    "verify_policy": "confidence-scheduled verification",
    "verify_confidence": "confidence-scheduled verification",
    "draft_varlen": "drafts of varying length",
    "determinism": _DETERMINISM,
    "deterministic": _DETERMINISM,
    "batch_invariant": _DETERMINISM,
    "kernel_plan": _KERNELS,
    "attention_backend": _KERNELS,
    "moe_backend": _KERNELS,
    "cuda_graph": "captured graphs",
    "cuda_graphs": "captured graphs",
    "cache": _CACHE,
    "prefix_cache": _CACHE,
    "prefix_caching": _CACHE,
    "cache_tiers": "cache tiers beyond the device",
    "kv_offload": "cache tiers beyond the device",
    "disaggregation": "disaggregated prefill and decode",
    "overlap": "overlapped scheduling",
    "overlap_schedule": "overlapped scheduling",
}
"""Axes that will exist: refused by name, so that no sweep believes it varied them.

A name that the engine has is an axis, whatever stands here.
"""

ALSO_CALLED = {
    "dp": "data_parallel_size",
    "replicas": "data_parallel_size",
    "draft_len": "draft_length",
    "num_speculative_tokens": "draft_length",
    "keep_tokens": "replay_keep_tokens",
    "replay_keep": "replay_keep_tokens",
    "concurrency": "batch_size",
    "max_concurrency": "batch_size",
    "max_batch": "max_num_seqs",
    "max_batch_size": "max_num_seqs",
    "chunk_tokens": "max_num_batched_tokens",
    "kv_dtype": "cache_format",
    "device": "accelerator",
}
"""What other tools and papers call an axis of ours."""


def axis_names(plan: Plan) -> set[str]:
    """Every name that an axis of this plan may have."""
    return {
        WORKLOAD_AXIS,
        *engine_names(plan),
        *fields_of(plan.load),
        *(name for spec in plan.workloads for name in fields_of(spec)),
    }


def fields_of(model: BaseModel) -> set[str]:
    """The fields of a load or workload that an axis may vary."""
    return set(type(model).model_fields) - {"kind", "name"}


def engine_names(plan: Plan) -> set[str]:
    """The fields of the engine configuration; of every arm, and its name, where there are some."""
    names = {name for arm in plan.all_arms.values() for name in arm.field_names()}
    return {*names, ARM_AXIS} if plan.arms else names


def check_names(plan: Plan) -> None:
    """PlanError for an axis or engine field that does not exist, or that is given twice.

    What a conditional block varies may be fixed too: points that it leaves out keep that.
    """
    known = axis_names(plan)
    if plan.http is not None:
        _refuse_engine_fields(plan)
    if plan.arms:
        _check_arms(plan)
    _check_fixed_fields(plan.engine, engine_names(plan), "engine")
    seen: set[str] = set()
    for block in plan.axes:
        for name in block.axes:
            if name in seen:
                raise PlanError("is given by two blocks", where=f"axes: {name}", remedy="Keep one.")
            seen.add(name)
            _check_axis(plan, name, known, conditional=block.when is not None, place="axes")
    for name in plan.search.over if plan.search is not None else ():
        _check_axis(plan, name, known, conditional=False, place="search.over")


def _check_arms(plan: Plan) -> None:
    """PlanError for a field that an arm does not have, or an axis of arms that are not there."""
    for name, arm in plan.arms.items():
        _check_fixed_fields(arm.engine, arm.field_names(), f"arms.{name}.engine")
        for field in sorted(arm.engine.keys() & plan.varied):
            raise PlanError(
                "is both fixed in this arm and an axis",
                where=f"arms.{name}.engine: {field}",
                remedy="Vary it in a block with `when`, for the other arms.",
            )
    for block in plan.axes:
        for value in block.axes.get(ARM_AXIS, ()):
            if value not in plan.arms:
                raise PlanError(
                    f"names the arm {brief(value)}, which the plan does not have",
                    where=f"axes: {ARM_AXIS}",
                    remedy=nearest(str(value), plan.arms),
                )


def _refuse_engine_fields(plan: Plan) -> None:
    """What a server runs with is settled before this plan meets it."""
    ours = {*engine_names(plan), *ROADMAP}
    for place, names in (("engine", plan.engine.keys()), ("axes", plan.varied)):
        for name in sorted(names & ours - fields_of(plan.load)):
            raise PlanError(NOT_OURS, where=f"{place}: {name}", remedy=DECLARE)


def _check_axis(plan: Plan, name: str, known: set[str], *, conditional: bool, place: str) -> None:
    if name not in known:
        _refuse_axis(name, known, place)
    if name in plan.engine and not conditional:
        raise PlanError(
            "is both fixed under engine and an axis",
            where=f"{place}: {name}",
            remedy="Keep one of the two.",
        )


def combinations(
    plan: Plan, meets: Callable[[str, dict[str, AxisValue]], bool]
) -> list[dict[str, AxisValue]]:
    """Axis values of every combination; several workloads are an axis of their own.

    `meets(when, values)` says whether the values of the blocks before meet a condition;
    conditional blocks come after all others. Where one is not met, its axes are left out.
    """
    _refuse_too_many(plan)
    always = [_rows(block) for block in plan.axes if block.when is None]
    if plan.arms and not any(ARM_AXIS in block.axes for block in plan.axes):
        others = sorted(name for name in plan.arms if name != plan.reference)
        always.insert(0, [{ARM_AXIS: name} for name in (plan.reference, *others)])
    if WORKLOAD_AXIS not in plan.varied and len(plan.workloads) > 1:
        always.append([{WORKLOAD_AXIS: spec.name} for spec in plan.workloads])
    found = [_joined(parts) for parts in itertools.product(*always)]
    for block in plan.axes:
        if block.when is not None:
            when, rows = block.when, _rows(block)
            found = [
                _joined((one, row)) for one in found for row in (rows if meets(when, one) else [{}])
            ]
    return found


def _joined(parts: Iterable[dict[str, AxisValue]]) -> dict[str, AxisValue]:
    return {name: value for part in parts for name, value in part.items()}


def _refuse_too_many(plan: Plan) -> None:
    """Count before anything is spread out: the counts cost no memory."""
    points = 1 if WORKLOAD_AXIS in plan.varied else len(plan.workloads)
    points *= 1 if any(ARM_AXIS in block.axes for block in plan.axes) else max(1, len(plan.arms))
    for block in plan.axes:
        lengths = [len(values) for values in block.axes.values()]
        points *= math.prod(lengths) if block.product is not None else lengths[0]
    if points > MAX_POINTS:
        raise PlanError(
            f"has {points} points, more than {MAX_POINTS}",
            where="axes",
            remedy="Sweep fewer values.",
        )
    repeats = plan.repeat_rule.max
    if points * repeats > MAX_POINTS:
        raise PlanError(
            f"asks for {points * repeats} trials, more than {MAX_POINTS}",
            where="repeats",
            remedy=f"Use at most {MAX_POINTS // points} repeats, or sweep fewer values.",
        )


def _rows(block: AxisBlock) -> list[dict[str, AxisValue]]:
    lists = block.axes
    tuples = (
        itertools.product(*lists.values())
        if block.product is not None
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


def called(name: str, known: Collection[str], *, otherwise: str | None = None) -> str:
    """What a setting of that name is called here, else the nearest; else `otherwise`, or all."""
    ours = ALSO_CALLED.get(name)
    if ours in known:
        return f"It is called {ours} here."
    return nearest(name, known, otherwise=otherwise)


def _check_fixed_fields(fields: Collection[str], known: set[str], place: str) -> None:
    for name in fields:
        if name in known:
            continue
        if name in ROADMAP:
            _refuse_roadmap(name, place)
        raise PlanError(
            "is no field of the engine configuration",
            where=f"{place}: {name}",
            remedy=called(name, known),
        )


def _refuse_axis(name: str, known: set[str], place: str) -> NoReturn:
    if name in ROADMAP:
        _refuse_roadmap(name, place)
    raise PlanError("is no axis", where=f"{place}: {name}", remedy=called(name, known))


def _refuse_roadmap(name: str, place: str) -> NoReturn:
    raise PlanError(
        f"this engine does not have {ROADMAP[name]} yet",
        where=f"{place}: {name}",
        remedy="Take it out of the plan.",
    )
