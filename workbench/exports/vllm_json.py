"""The result file of `vllm bench serve`, one a measured trial, in its names and milliseconds.

TPOT is theirs (all tokens but one), ITL the gap between chunks. What cannot be had is null, and
`workbench_missing` says why; state, gates and axes stand under names of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from workbench.exports.engines import engine_of
from workbench.exports.samples import UNTOLD, Array, Trial, deviation, measured, quantile
from workbench.files import to_json

if TYPE_CHECKING:
    from workbench.store import Run

FAMILIES = {"ttft": "ttft_s", "tpot": "tpot_compat_s", "itl": "icl_s", "e2el": "e2e_s"}
RATES = {
    "request_throughput": "request_s",
    "request_goodput": "goodput",
    "output_throughput": "output_tok_s",
    "total_token_throughput": "total_tok_s",
    "max_concurrent_requests": "concurrency_peak",
    "duration": "duration_s",
    "spec_decode_acceptance_length": "acceptance_length",
    "spec_decode_acceptance_rate": "acceptance_rate",
}


PER_CENT = frozenset({"spec_decode_acceptance_rate"})  # as its own code writes it


def vllm_files(run: Run) -> dict[str, bytes]:
    """`<trial>.json` -> document, of every trial that was measured, the invalid ones included."""
    return {f"{t.trial_id}.json": to_json(document(t)).encode() for t in measured(run)}


def document(trial: Trial) -> dict[str, object]:
    """The result of one trial."""
    missing: dict[str, str] = {}
    numbers = _rates(trial, missing) | _latencies(trial, missing)
    return {
        **_identity(trial),
        **_counts(trial),
        **numbers,
        **_details(trial),
        **_ours(trial),
        "workbench_missing": missing,
    }


def _identity(trial: Trial) -> dict[str, object]:
    workload, summary = trial.point["workload"], trial.run.summary
    served = engine_of(trial)
    backend = summary.engine if served.arm is None else served.tool
    started = datetime.fromisoformat(str(trial.document["started_utc"])).astimezone(UTC)
    rate = workload.get("rate")
    batch = workload.get("batch_size", workload.get("max_concurrency"))
    return {
        "date": f"{started:%Y%m%d-%H%M%S}",
        "backend": backend,
        "endpoint_type": backend,
        "label": trial.run.run_id,
        "model_id": summary.model,
        "tokenizer_id": summary.model,
        "num_prompts": len(trial.requests),
        "request_rate": rate if isinstance(rate, int | float) else "inf",
        "max_concurrency": batch if isinstance(batch, int) else None,
    }


def _counts(trial: Trial) -> dict[str, object]:
    requests = trial.requests
    done = requests[requests["error"].isna() & ~requests["finish_reason"].isin(["abort", "error"])]
    return {
        "completed": len(done),
        "failed": len(requests) - len(done),
        "total_input_tokens": int(done["prompt_tokens"].sum()),
        "total_output_tokens": int(done["output_tokens"].sum()),
    }


def _rates(trial: Trial, missing: dict[str, str]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, metric in RATES.items():
        value = trial.value(metric)
        found[name] = value * 100 if value is not None and name in PER_CENT else value
        if value is None:
            missing[name] = trial.reason(metric)
    return found


def _latencies(trial: Trial, missing: dict[str, str]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, family in FAMILIES.items():
        samples = trial.samples(family)
        why = UNTOLD if trial.columns is None else f"n={len(samples)}"
        for statistic, value in _statistics(samples).items():
            key = f"{statistic}_{name}_ms"
            found[key] = None if value is None else value * 1e3
            if value is None:
                missing[key] = why
    return found


def _statistics(samples: Array) -> Mapping[str, float | None]:
    return {
        "mean": float(np.mean(samples)) if len(samples) else None,
        "median": quantile(samples, 0.5),
        "std": deviation(samples),
        "p90": quantile(samples, 0.9),
        "p99": quantile(samples, 0.99),
    }


def _details(trial: Trial) -> dict[str, object]:
    """One item a request, in the order of the workload; a time that never came is null."""
    rows = trial.requests
    firsts = [_first(times) for times in rows["chunk_time_s"]]
    lasts = [times[-1] if len(times) else None for times in rows["chunk_time_s"]]
    sent = [None if s != s else float(s) for s in rows["sent_s"].astype(float)]
    return {
        "input_lens": [int(n) for n in rows["prompt_tokens"]],
        "output_lens": [int(n) for n in rows["output_tokens"]],
        "start_times": sent,
        "ttfts": [_since(at, begin) for at, begin in zip(firsts, sent, strict=True)],
        "itls": [[float(gap) for gap in np.diff(times)] for times in rows["chunk_time_s"]],
        "latencies": [_since(at, begin) for at, begin in zip(lasts, sent, strict=True)],
        "errors": [error if isinstance(error, str) else "" for error in rows["error"]],
    }


def _first(times: Array) -> float | None:
    return float(times[0]) if len(times) else None


def _since(at: float | None, begin: float | None) -> float | None:
    return None if at is None or begin is None else float(at) - begin


def _ours(trial: Trial) -> dict[str, object]:
    return {
        "workbench_trial": trial.trial_id,
        "workbench_state": trial.document["state"],
        "workbench_reason": trial.document["reason"],
        "workbench_labels": trial.labels,
        "workbench_repeat": trial.document["repeat"],
        "workbench_axes": dict(trial.point["axes"]),
        "workbench_code": trial.run.code_version,
    }
