"""What a load asks of its workload and of the engine, held against them before anything runs."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.arrival import Horizon, schedule
from experiments.errors import PlanError
from experiments.feed import first_turns, is_conversational
from experiments.load_specs import (
    ROUND_LOADS,
    DecodeBatchLoad,
    Load,
    PrefillStepLoad,
    SessionsLoad,
    TraceLoad,
)
from experiments.records import AxisValue
from experiments.sessions import check_sessions
from experiments.targets.base import TargetFacts
from experiments.workload import Workload
from experiments.workload_specs import SyntheticSpec, WorkloadSpec


def shaped(spec: WorkloadSpec, load: Load) -> WorkloadSpec:
    """The workload with the lengths that a load of steps fixes; unchanged for other loads.

    PlanError for a workload whose lengths are its own.
    """
    if not isinstance(load, DecodeBatchLoad | PrefillStepLoad):
        return spec
    if not isinstance(spec, SyntheticSpec):
        raise PlanError(
            f"fixes the lengths itself, and workload {spec.name} has its own",
            where=f"load: {load.kind}",
            remedy="Use a synthetic workload; its `content` may be a text.",
        )
    output = load.output_tokens if isinstance(load, DecodeBatchLoad) else 1
    return spec.model_copy(
        update={
            "prompt_tokens": load.prompt_tokens,
            "output_tokens": output,
            "spread": 0.0,
            "exact_output_length": True,
        }
    )


def check_load(load: Load, workload: Workload, facts: TargetFacts) -> None:
    """PlanError or WorkloadError where the load cannot be put on this engine as it says."""
    _check_whole(load, workload)
    if is_conversational(load, workload):
        assert isinstance(load, SessionsLoad | TraceLoad)
        check_sessions(load, workload)
        if isinstance(load, TraceLoad):
            first_turns(workload, workload.rows or 1)
    elif isinstance(load, TraceLoad):
        schedule(load, workload, horizon=Horizon(requests=workload.rows or 1), salt="")
    if isinstance(load, ROUND_LOADS):
        _check_room("max_num_seqs", load.slots, "requests at once", load, facts.configuration)
    if isinstance(load, PrefillStepLoad):
        tokens = load.slots * load.prompt_tokens
        _check_room("max_num_batched_tokens", tokens, "tokens in a step", load, facts.configuration)


def _check_whole(load: Load, workload: Workload) -> None:
    """A workload that is asked whole, each request once, goes one by one, and never all at once."""
    whole = workload.whole
    if whole is None:
        return
    where = f"workload {workload.spec.name}"
    if isinstance(load, (*ROUND_LOADS, SessionsLoad, TraceLoad)):
        raise PlanError(
            f"is asked one by one, which a load of kind {load.kind} does not do",
            where=where,
            remedy="Use closed, constant, poisson, gamma or ramp.",
        )
    if load.slots is not None and load.slots > whole.requests:
        raise PlanError(
            f"has {whole.requests} requests, and {load.slots} in flight leave nothing to measure",
            where=where,
            remedy="Lower batch_size to that at most, or raise samples or max_questions.",
        )


def check_clients(load: Load, clients: int) -> None:
    """PlanError where the load cannot be shared by so many client processes."""
    if clients == 1:
        return
    if isinstance(load, ROUND_LOADS):
        raise PlanError(
            f"a round waits for all its requests: one client sends {load.kind}, not {clients}",
            where="clients",
            remedy="Set clients to 1.",
        )
    slots = getattr(load, "max_concurrency", None) or load.slots
    if slots is not None and slots < clients:
        raise PlanError(
            f"{clients} clients cannot share {slots} requests in flight",
            where="clients",
            remedy=f"Set clients to at most {slots}.",
        )


def load_facts(load: Load, workload: Workload) -> dict[str, AxisValue]:
    """What a record says of the load: its fields and kind, and what must agree to compare it.

    `measured_in` sets throughput of a full batch, or of prefills, apart from that of serving;
    turns share a prefix with the turns before them.
    """
    fields = load.model_dump()
    found: dict[str, AxisValue] = {"load": fields.pop("kind"), **fields}
    if isinstance(load, ROUND_LOADS):
        found["measured_in"] = "prefill" if isinstance(load, PrefillStepLoad) else "full batch"
    if is_conversational(load, workload):
        found["shared_prefixes"] = True
    return found


def _check_room(
    name: str, wanted: int, what: str, load: Load, engine: Mapping[str, AxisValue]
) -> None:
    """PlanError where the replicas together do not take so much; a server may not say."""
    most, replicas = engine.get(name), engine.get("data_parallel_size") or 1
    if not isinstance(most, int) or not isinstance(replicas, int):
        return
    if wanted > most * replicas:
        raise PlanError(
            f"puts {wanted} {what} on an engine that takes {most * replicas}",
            where=f"load: {load.kind}",
            remedy=f"Raise engine.{name}, or lower the load.",
        )
