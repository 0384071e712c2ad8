"""One point measured once: warm-up, load, metrics, gates, record."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.arrival import ClosedArrival, arrival
from experiments.clock import Clock
from experiments.gates import Conditions, evaluate, first_failure
from experiments.identity import seed_of
from experiments.load import LoadGenerator, Phase, PhaseResult
from experiments.measurement import Measurement, cancelled
from experiments.metrics import measure
from experiments.observe import Observer
from experiments.plan import Plan
from experiments.records import TrialRecord, TrialState
from experiments.space import PlannedTrial
from experiments.statistics import with_intervals
from experiments.targets.base import Target, TargetFacts

INDICATIVE = "indicative"
RANDOM_WEIGHTS = "random weights: acceptance is meaningless"
SIMULATED = "simulated"


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What every trial of a sweep is measured with."""

    plan: Plan
    clock: Clock
    observer: Observer


def run_trial(planned: PlannedTrial, target: Target, bench: Bench) -> TrialRecord:
    """Measure one point on an open target. TargetError if the engine fails."""
    plan, clock = bench.plan, bench.clock
    started_utc = clock.utc().isoformat(timespec="microseconds")
    origin_ns = clock.now_ns()
    generator = LoadGenerator(target, clock, origin_ns)
    target.reset()
    warm_up = generator.run(_warm_up(planned, plan))
    before = target.stats()
    bench.observer.start(clock, origin_ns, planned.facts)
    try:
        phase = _measured(planned, plan)
        measured = generator.run(phase)
    finally:
        telemetry = bench.observer.stop()
    measurement = Measurement(
        requests=measured.requests,
        window_s=measured.window_s,
        devices=planned.facts.devices,
        telemetry=telemetry,
        due_requests=phase.arrival.due_before(measured.window_s[1] - measured.window_s[0]),
        counters={k: v - before.get(k, 0.0) for k, v in target.stats().items()},
    )
    return _record(planned, bench, measurement, warm_up, started_utc, generator.now_s())


def failed_record(
    planned: PlannedTrial, bench: Bench, error: Exception, log: str, state: TrialState
) -> TrialRecord:
    """The record of a point that gave no measurement: FAILED, or SKIPPED for a known reason."""
    return TrialRecord(
        trial_id=planned.trial_id,
        point=planned.point,
        repeat=planned.repeat,
        state=state,
        reason=str(error),
        started_utc=bench.clock.utc().isoformat(timespec="microseconds"),
        duration_s=0.0,
        window_s=None,
        labels=labels(bench.plan, planned.facts),
        engine_log=log,
    )


def labels(plan: Plan, facts: TargetFacts) -> tuple[str, ...]:
    """What must be said wherever a number of this trial is shown."""
    said = {
        INDICATIVE: plan.protocol.indicative,
        RANDOM_WEIGHTS: facts.random_weights,
        SIMULATED: facts.simulated,
    }
    return tuple(label for label, holds in said.items() if holds)


def _warm_up(planned: PlannedTrial, plan: Plan) -> Phase:
    """Other content than what is measured, so that no cache is warm for it."""
    slots = planned.batch_size or 1
    protocol = plan.protocol
    salt = f"{planned.salt}/warm-up"
    return Phase(
        name="warm-up",
        item=lambda index: planned.workload.item(index, salt),
        arrival=ClosedArrival(slots),
        max_requests=slots * protocol.warm_up_per_slot,
        limit_s=protocol.limit_s,
        drain_s=protocol.drain_s,
        output_cap=protocol.warm_up_output_tokens,
        warm_up=True,
        exact_output_length=planned.workload.spec.exact_output_length,
        temperature=planned.workload.spec.temperature,
    )


def _measured(planned: PlannedTrial, plan: Plan) -> Phase:
    protocol = plan.protocol
    return Phase(
        name=f"r{planned.trial_id[:6]}",
        item=lambda index: planned.workload.item(index, planned.salt),
        arrival=arrival(
            planned.load, planned.workload, count=protocol.max_requests, salt=planned.salt
        ),
        max_requests=protocol.max_requests,
        measured_s=protocol.measured_s,
        min_completed=max(
            protocol.measured_requests, protocol.measured_per_slot * (planned.batch_size or 1)
        ),
        limit_s=protocol.limit_s,
        drain_s=protocol.drain_s,
        exact_output_length=planned.workload.spec.exact_output_length,
        temperature=planned.workload.spec.temperature,
    )


def _record(
    planned: PlannedTrial,
    bench: Bench,
    measurement: Measurement,
    warm_up: PhaseResult,
    started_utc: str,
    duration_s: float,
) -> TrialRecord:
    plan = bench.plan
    metrics = with_intervals(
        measure(measurement, plan.slo),
        measurement,
        draws=plan.protocol.bootstrap_draws,
        seed=seed_of(planned.trial_id),
    )
    conditions = Conditions(
        limits=plan.gates,
        needed_requests=plan.protocol.needed_requests(planned.batch_size),
        batch_size=planned.batch_size,
        shares_prefixes=bool(planned.point.workload.get("shared_prefixes")),
    )
    gates = evaluate(measurement, metrics, conditions)
    state, reason = _verdict(measurement, first_failure(gates))
    return TrialRecord(
        trial_id=planned.trial_id,
        point=planned.point,
        repeat=planned.repeat,
        state=state,
        reason=reason,
        started_utc=started_utc,
        duration_s=duration_s,
        window_s=measurement.window_s,
        metrics=metrics,
        gates=gates,
        requests=(*warm_up.requests, *measurement.requests),
        telemetry=measurement.telemetry,
        labels=labels(plan, planned.facts),
    )


def _verdict(measurement: Measurement, failure: str | None) -> tuple[TrialState, str | None]:
    if not measurement.succeeded:
        return TrialState.FAILED, _why_none_succeeded(measurement)
    return (TrialState.INVALID, failure) if failure else (TrialState.OK, None)


def _why_none_succeeded(measurement: Measurement) -> str:
    count = len(measurement.issued)
    if not count:
        return "nothing was sent"
    first = next((r.error for r in measurement.issued if r.error), None)
    given_up = sum(map(cancelled, measurement.issued))
    said = [f"the first error: {first}"] if first else []
    if given_up:
        said.append(f"{given_up} did not end within the drain time and were cancelled")
    if not said:
        said = ["the engine named no error"]
    remedy = "; raise protocol.drain_s, or engine.num_threads where cores idle" if given_up else ""
    return f"none of {count} requests succeeded; {'; '.join(said)}{remedy}"
