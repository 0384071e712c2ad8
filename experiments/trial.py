"""One point measured once: warm-up, load, metrics, gates, record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from experiments.arrival import WHOLE, ClosedArrival, Horizon, Share
from experiments.clock import Clock
from experiments.counters import Counters
from experiments.evals.grading import graded
from experiments.evals.llm_judge import LlmJudge
from experiments.evals.workload import EvalWorkload
from experiments.feed import ItemFeed, feed_of
from experiments.foreign_cpu import on_this_host
from experiments.gate_parts import Evidence
from experiments.gates import evaluate, first_failure
from experiments.identity import digest, seed_of
from experiments.labels import INDICATIVE, labels_afterwards, labels_beforehand
from experiments.load import Phase
from experiments.load_runner import load_runner
from experiments.measurement import Measurement, cancelled, lost
from experiments.metrics import measure
from experiments.observe import Observer
from experiments.outputs import fingerprints, kept
from experiments.plan import Plan
from experiments.records import (
    EvalAnswer,
    MetricValue,
    RequestRecord,
    TelemetrySample,
    TrialRecord,
    TrialState,
)
from experiments.space import PlannedTrial
from experiments.statistics import with_intervals
from experiments.steady import without_ramp
from experiments.targets.base import Decodes, Target
from experiments.warm_up import WarmUp, warm_up
from experiments.windows import in_rounds, most_requests
from experiments.workload import WorkItem, Workload


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What every trial of a sweep is measured with."""

    plan: Plan
    clock: Clock
    observer: Observer
    changes: Callable[[], tuple[str, ...]] | None = None
    """What changed around the run since it began, in words; None: nobody watches."""


def run_trial(planned: PlannedTrial, target: Target, bench: Bench) -> TrialRecord:
    """Measure one point on an open target. TargetError if the engine fails."""
    plan, clock = bench.plan, bench.clock
    started_utc = clock.utc().isoformat(timespec="microseconds")
    origin_ns = clock.now_ns()
    runner = load_runner(target, clock, origin_ns)
    phase_of = partial(measured_phase, planned, plan)
    calibration = runner.calibrate(phase_of, load_shape(planned))
    target.reset()
    idle_power_w = bench.observer.idle_power_w(clock, planned.facts, plan.protocol.idle_s)
    warmed = warm_up(runner, partial(_warm_up, planned, plan), plan.protocol)
    warmed = replace(warmed, calibration=calibration)
    before = Counters.of(target, remote=planned.facts.remote)
    bench.observer.start(clock, origin_ns, planned.facts)
    try:
        measured = runner.run(phase_of)
    finally:
        telemetry = bench.observer.stop()
    grown = before.until(Counters.of(target, remote=planned.facts.remote))
    whole = Measurement(
        requests=measured.requests,
        window_s=measured.window_s,
        devices=planned.facts.devices,
        telemetry=_in_order((*telemetry, *measured.client_cpu)),
        idle_power_w=idle_power_w,
        tally=measured.tally,
        server_beside=_server_beside(planned),
        counters=grown.values,
        counters_reason=grown.reason,
    )
    sent_s = whole.window_length_s
    whole = in_rounds(whole, planned.load)
    measurement = without_ramp(whole) if plan.protocol.drop_ramp else whole
    measurement = replace(measurement, due_requests=_due(phase_of(WHOLE), measurement))
    evals = _judged(planned, target, measured.requests)
    record = _record(planned, bench, measurement, warmed, started_utc, evals)
    ended_early = planned.workload.whole is None and sent_s < plan.protocol.measured_s
    said = dict.fromkeys((INDICATIVE, *record.labels)) if ended_early else record.labels
    return replace(record, duration_s=runner.now_s(), labels=tuple(said))


def _server_beside(planned: PlannedTrial) -> bool:
    """Whether a server that we did not start may share this host's processors with us."""
    url = planned.facts.configuration.get("url")
    return planned.facts.remote and on_this_host(str(url))


def _judged(
    planned: PlannedTrial, target: Target, requests: tuple[RequestRecord, ...]
) -> tuple[EvalAnswer, ...]:
    """The answers to an eval, judged after the load; () for another workload."""
    if not isinstance(planned.workload, EvalWorkload):
        return ()
    engine = planned.point.engine
    decode = partial(target.decode, engine) if isinstance(target, Decodes) else None
    settings = planned.workload.judge()
    judge = LlmJudge(settings) if settings is not None else None
    return graded(planned.workload, requests, decode, judge)


def load_shape(planned: PlannedTrial) -> str:
    """Trials that ask a client for the same work."""
    return digest(planned.load.model_dump(), planned.workload.content_hash)


def _in_order(samples: tuple[TelemetrySample, ...]) -> tuple[TelemetrySample, ...]:
    return tuple(sorted(samples, key=lambda sample: sample.time_s))


def _due(phase: Phase, measurement: Measurement) -> int | None:
    """Requests that the schedule wanted sent in the window; None where there is no schedule."""
    length_s, ramp_s = measurement.window_length_s, measurement.ramp_s
    due = phase.feed.due_before(ramp_s + length_s)
    early = phase.feed.due_before(ramp_s) if ramp_s else 0
    return None if due is None else due - (early or 0)


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
        labels=labels_beforehand(bench.plan, planned.facts),
        engine_log=log,
    )


def _warm_up(planned: PlannedTrial, plan: Plan, number: int, share: Share) -> Phase:
    """Round `number`: other content than what is measured, so that no cache is warm for it."""
    slots = planned.batch_size or 1
    protocol, workload = plan.protocol, planned.workload
    count = slots * protocol.warm_up_per_slot
    return Phase(
        name=f"warm-up-{number}" if number else "warm-up",
        feed=ItemFeed(
            partial(_warm_up_item, workload, planned.salt, number * count),
            ClosedArrival(share.slots(slots)),
            share,
        ),
        max_requests=count,
        limit_s=protocol.limit_s,
        drain_s=protocol.drain_s,
        output_cap=protocol.warm_up_output_tokens,
        warm_up=True,
        exact_output_length=workload.spec.exact_output_length,
        temperature=workload.spec.temperature,
    )


def _warm_up_item(workload: Workload, salt: str, first: int, index: int) -> WorkItem:
    return workload.warm_up_item(first + index, salt)


def measured_phase(planned: PlannedTrial, plan: Plan, share: Share) -> Phase:
    """What is measured of a trial, or one client's share of it."""
    protocol, slots = plan.protocol, planned.batch_size or 1
    whole = planned.workload.whole
    most = protocol.max_requests if whole is None else whole.requests
    phase = Phase(
        name=f"r{planned.trial_id[:6]}",
        feed=feed_of(
            planned.load,
            planned.workload,
            horizon=Horizon(requests=most, measured_s=protocol.measured_s),
            salt=planned.salt,
            share=share,
        ),
        max_requests=most_requests(planned.load, most),
        measured_s=protocol.measured_s,
        measured_e2e=protocol.measured_e2e,
        min_completed=max(protocol.measured_requests, protocol.measured_per_slot * slots),
        limit_s=protocol.limit_s,
        drain_s=protocol.drain_s,
        exact_output_length=planned.workload.spec.exact_output_length,
        temperature=planned.workload.spec.temperature,
    )
    if whole is None:
        return phase
    return replace(phase, measured_s=None, limit_s=whole.limit_s, drain_s=whole.limit_s)


def _record(
    planned: PlannedTrial,
    bench: Bench,
    measurement: Measurement,
    warmed: WarmUp,
    started_utc: str,
    evals: tuple[EvalAnswer, ...],
) -> TrialRecord:
    plan = bench.plan
    draws, seed = plan.protocol.bootstrap_draws, seed_of(planned.trial_id)
    metrics = with_intervals(measure(measurement, plan.slo), measurement, draws=draws, seed=seed)
    if isinstance(planned.workload, EvalWorkload):
        metrics |= planned.workload.scores(evals, draws=draws, seed=seed)
    gates = evaluate(_evidence(planned, bench, measurement, warmed, metrics))
    state, reason = _verdict(measurement, first_failure(gates))
    return TrialRecord(
        trial_id=planned.trial_id,
        point=planned.point,
        repeat=planned.repeat,
        state=state,
        reason=reason,
        started_utc=started_utc,
        duration_s=0.0,
        window_s=measurement.window_s,
        metrics=metrics,
        gates=gates,
        requests=kept((*warmed.requests, *measurement.requests), plan.protocol.keep_output_tokens),
        telemetry=measurement.telemetry,
        idle_power_w=measurement.idle_power_w,
        labels=(
            *labels_beforehand(plan, planned.facts),
            *labels_afterwards(metrics, planned.point.workload, planned.facts),
        ),
        outputs=fingerprints(measurement.succeeded, planned.workload.spec.temperature),
        calibration=warmed.calibration,
        evals=evals,
    )


def _evidence(
    planned: PlannedTrial,
    bench: Bench,
    measurement: Measurement,
    warmed: WarmUp,
    metrics: dict[str, MetricValue],
) -> Evidence:
    return Evidence(
        measurement=measurement,
        metrics=metrics,
        limits=bench.plan.gates,
        protocol=bench.plan.protocol,
        renders_chat=planned.facts.renders_chat,
        batch_size=planned.batch_size,
        workload=planned.point.workload,
        warm_up=warmed.requests,
        warm_up_rounds=warmed.rounds,
        calibration=warmed.calibration,
        changes=bench.changes() if bench.changes is not None else None,
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
    unheard = sum(map(lost, measurement.issued))
    if unheard:
        said.append(f"{unheard} were never answered, nor acknowledged when they were given up")
    if not said:
        said = ["the engine named no error"]
    remedy = "; raise protocol.drain_s, or engine.num_threads where cores idle" if given_up else ""
    return f"none of {count} requests succeeded; {'; '.join(said)}{remedy}"
