"""Trial records of a whole sweep that never ran: plausible, invalid, failed, hostile ones."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from pathlib import Path

import pandas as pd

from experiments.records import (
    Chunk,
    Gate,
    MetricValue,
    Point,
    RequestRecord,
    TelemetrySample,
    TrialId,
    TrialRecord,
    TrialState,
)
from workbench.points import points_table
from workbench.repeats import pooled
from workbench.store import Run, RunFacts, Store
from workbench.trial_files import document

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "{{ 7 * 7 }} {% raw %}",
    "'; DROP TABLE trials; --",
    "=HYPERLINK(0)|cmd",
    "line\nbreak\ttab | pipe `tick` $x$",
)
UNICODE = "Größe 吞吐量 ✓ אבג 🚀 e\u0301"
INDICATIVE = "indicative"
RANDOM_WEIGHTS = "random weights: acceptance is meaningless"
LABELS = (INDICATIVE, RANDOM_WEIGHTS)
AXES = {
    "batch_size": (1, 4, 16),
    "draft_length": (0, 5),
    "replay_keep_tokens": (44, 128),
    "data_parallel_size": (1, 2),
}


def record(*, state: TrialState = TrialState.OK, repeat: int = 0, **axes) -> TrialRecord:
    """One trial of the demo's sweep; `axes` override its default cell."""
    cell = {name: values[0] for name, values in AXES.items()} | axes
    key = repr((sorted(cell.items(), key=str), repeat)).encode("utf-8", "replace")
    measured = state in (TrialState.OK, TrialState.INVALID)
    requests = requests_of(int(cell["batch_size"])) if measured else ()
    return TrialRecord(
        trial_id=TrialId(hashlib.sha256(key).hexdigest()[:16]),
        point=Point(
            axes=cell,
            engine={"model": "toy", "dtype": "float32", "replay_mode": "compact"} | cell,
            workload={"kind": "trace", "name": "azure", "scale": 0.05, "seed": 0},
        ),
        repeat=repeat,
        state=state,
        reason=REASONS[state],
        started_utc="2026-11-29T12:00:00+00:00",
        duration_s=3.5,
        window_s=(0.5, 3.0) if measured else None,
        metrics=metrics_of(cell) if measured else {},
        gates=gates(state) if measured else (),
        requests=requests,
        telemetry=telemetry() if measured else (),
        labels=LABELS,
        engine_log="" if measured else "loading toy\nout of memory at step 7\n",
    )


REASONS = {
    TrialState.OK: None,
    TrialState.INVALID: "error_rate: 2 of 16 requests failed, more than 1 %",
    TrialState.FAILED: "the engine stopped: out of memory",
    TrialState.SKIPPED: "a smaller batch ran out of memory",
}


def gates(state: TrialState) -> tuple[Gate, ...]:
    """The gates of a trial; the first fails for an invalid one."""
    passed = state is TrialState.OK
    return (
        Gate(
            name="error_rate",
            passed=passed,
            value=0.0 if passed else 0.125,
            limit=0.01,
            message="no request failed" if passed else "2 of 16 requests failed, more than 1 %",
        ),
        Gate(name="littles_law", passed=True, value=1.02, limit=1.1, message="within 10 %"),
    )


def metrics_of(cell: dict) -> dict[str, MetricValue]:
    """Metrics that behave like a server: more users, more tokens, each one slower."""
    batch, draft = int(cell["batch_size"]), int(cell["draft_length"])
    replicas = int(cell["data_parallel_size"])
    keep = 1 - int(cell["replay_keep_tokens"]) / 5000
    user = 120 * keep * (1 + 0.1 * draft) / (1 + 0.12 * batch / replicas)
    total = user * batch * 0.9
    n = 16 * batch
    values = {
        "output_tok_s": total,
        "output_tok_s_device": total / replicas,
        "total_tok_s": total * 9,
        "request_s": total / 32,
        "tok_s_user": user,
        "tok_s_user_p50": user * 1.01,
        "ttft_s_mean": 0.020 * batch / replicas,
        "ttft_s_p50": 0.018 * batch / replicas,
        "tpot_s_mean": 1 / user,
        "tpot_s_p50": 1 / user / 1.01,
        "itl_s_p50": 1 / user,
        "e2e_s_p50": 0.018 * batch + 32 / user,
        "concurrency_mean": batch * 0.97,
        "concurrency_peak": float(batch),
        "prompt_tokens": 256.0 * n,
        "output_tokens": 32.0 * n,
        "completed_requests": float(n),
        "failed_requests": 0.0,
        "error_rate": 0.0,
        "duration_s": 2.5,
        "acceptance_length": 1.3 if draft else None,
    }
    reasons = {"acceptance_length": "nothing was drafted"}
    found = {
        name: MetricValue(value=None, n=0, reason=reasons[name])
        if value is None
        else MetricValue(value=value, n=n, low=value * 0.95, high=value * 1.05)
        for name, value in values.items()
    }
    found["energy_j_token"] = MetricValue(value=None, n=0, reason="no device counts energy here")
    found["ttft_s_p99"] = MetricValue(value=None, n=n, reason=f"n={n} < 200")
    return found


def requests_of(batch: int, *, count: int = 4, tokens: int = 8) -> tuple[RequestRecord, ...]:
    """`count` measured requests after a warm-up one, tokens at equal gaps."""
    return tuple(
        RequestRecord(
            request_id=f"r{index}",
            index=index,
            intended_s=0.1 * index,
            dispatched_s=0.1 * index,
            sent_s=0.1 * index,
            chunks=tuple(
                Chunk(time_s=0.1 * index + 0.02 * batch + 0.01 * k, tokens=1) for k in range(tokens)
            ),
            ended_s=0.1 * index + 0.02 * batch + 0.01 * (tokens - 1),
            finish_reason="length",
            error=None,
            prompt_tokens=64 + index,
            output_tokens=tokens,
            requested_output_tokens=tokens,
            exact_output_length=True,
            accepted_by_position=(2, 1),
            proposed_by_position=(4, 4),
            replica=0,
            warm_up=index == 0,
            text_hash="0123abcd",
        )
        for index in range(count + 1)
    )


def telemetry(samples: int = 5) -> tuple[TelemetrySample, ...]:
    """Host readings of a machine without a device."""
    return tuple(
        TelemetrySample(time_s=0.5 * k, cpu_percent=90.0 + k, memory_bytes=2_000_000_000 + k)
        for k in range(samples)
    )


def sweep_records() -> list[TrialRecord]:
    """The 24 trials of the demo's axes: 20 ok, 2 invalid, 1 failed, 1 skipped."""
    states = {
        3: TrialState.INVALID,
        10: TrialState.INVALID,
        22: TrialState.FAILED,
        23: TrialState.SKIPPED,
    }
    cells = itertools.product(*AXES.values())
    return [
        record(state=states.get(number, TrialState.OK), **dict(zip(AXES, cell, strict=True)))
        for number, cell in enumerate(cells)
    ]


def failed_records() -> list[TrialRecord]:
    """A run in which nothing worked."""
    return [record(state=TrialState.FAILED, batch_size=batch) for batch in (1, 4)]


def with_text(text: str, **axes) -> TrialRecord:
    """An invalid trial that carries `text` in every string field it has."""
    plain = record(state=TrialState.INVALID, note=text, **axes)
    request = dataclasses.replace(plain.requests[1], request_id=text, error=text)
    return dataclasses.replace(
        plain,
        point=Point(
            axes=plain.point.axes,
            engine=plain.point.engine | {"model": text},
            workload=plain.point.workload | {"name": text},
        ),
        reason=text,
        gates=(Gate(name=text, passed=False, value=None, limit=None, message=text),),
        metrics=plain.metrics | {"itl_s_p99": MetricValue(value=None, n=0, reason=text)},
        requests=(request,),
        labels=(*LABELS, text),
        engine_log=text,
    )


def hostile_records() -> list[TrialRecord]:
    """One invalid trial a hostile string, beside two sound ones."""
    sound = [record(batch_size=batch) for batch in (1, 4)]
    return sound + [with_text(text, batch_size=8) for text in HOSTILE]


def unicode_records() -> list[TrialRecord]:
    """Sound trials and one whose every text is far from ASCII."""
    return [record(batch_size=1), record(batch_size=4, note=UNICODE), with_text(UNICODE)]


def many_records(count: int) -> list[TrialRecord]:
    """`count` valid trials with no rows of requests: for pages with very many points."""
    return [
        dataclasses.replace(
            record(
                batch_size=1 + number % 64,
                draft_length=number // 64 % 6,
                replay_keep_tokens=44 + number // 384,
            ),
            requests=(),
            telemetry=(),
        )
        for number in range(count)
    ]


def points_of(items: list[TrialRecord], run_id: str = "run") -> pd.DataFrame:
    """The table of points that a run of these records would have, without a store."""
    return pooled(points_table(run_id, map(document, items)))


def plan(name: str = "demo", question: str = "Does drafting pay on one host?") -> dict:
    """A locked plan like the demo's."""
    return {
        "name": name,
        "question": question,
        "protocol": "quick",
        "engine": {"model": "toy"},
        "axes": [{"product": {axis: list(values) for axis, values in AXES.items()}}],
        "repeats": 1,
        "seed": 0,
    }


def environment() -> dict:
    """A manifest like `workbench.provenance` makes on a machine without a device."""
    return {
        "python": "3.11.9",
        "os": "Linux",
        "cpu_model": "Example CPU",
        "cpu_logical": 2,
        "memory_bytes": 8_000_000_000,
        "packages": {"torch": "2.13.0"},
        "devices": None,
        "devices_reason": "no NVIDIA driver answers",
    }


def facts(planned: int, name: str = "demo", question: str = "Does drafting pay?") -> RunFacts:
    """What run.json holds for a fake run."""
    return RunFacts(
        name=name,
        question=question,
        plan=plan(name, question),
        planned=planned,
        environment=environment(),
        code_version="0.1.0+test",
        checkpoint_fingerprint="f" * 16,
        engine="in_process",
        accelerator="cpu: Example CPU",
        model="toy",
    )


def fill_store(
    path: str | Path,
    records: list[TrialRecord] | None = None,
    *,
    name: str = "demo",
    question: str = "Does drafting pay on one host?",
    planned: int | None = None,
    **changes: object,
) -> Run:
    """A stored run of `records` (default: the whole sweep) under `path`, closed.

    `changes` replace fields of run.json.
    """
    records = sweep_records() if records is None else records
    count = len(records) if planned is None else planned
    store = Store(path)
    kept = dataclasses.replace(facts(count, name, question), **changes)
    with store.create(kept) as writer:
        for item in records:
            writer.append(item)
    return store.run(writer.run.run_id)
