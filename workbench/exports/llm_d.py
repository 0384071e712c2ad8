"""The Benchmark Report of llm-d, version 0.2.1: one document a trial that is valid.

The format has no word for a measurement that did not pass its gates, so such trials are left out.
So is every field that we have no number for; a percentile needs as many samples as elsewhere.
https://github.com/llm-d/llm-d-benchmark/tree/main/benchmark-report
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np

from experiments.identity import digest
from workbench.exports.engines import STARTED, TOOL, engine_of
from workbench.exports.samples import Array, Trial, deviation, measured, quantile
from workbench.files import finite

if TYPE_CHECKING:
    from workbench.store import Run

VERSION = "0.2.1"
PERCENTILES = {
    "p0p1": 0.001, "p1": 0.01, "p5": 0.05, "p10": 0.10, "p25": 0.25, "p50": 0.50, "p75": 0.75,
    "p90": 0.90, "p95": 0.95, "p99": 0.99, "p99p9": 0.999,
}  # fmt: skip
LATENCIES = {
    "time_to_first_token": ("ttft_s", "s"),
    "time_per_output_token": ("tpot_s", "s/token"),
    "inter_token_latency": ("itl_s", "s/token"),
    "request_latency": ("e2e_s", "s"),
}
RATES = {
    "output_token_rate": ("output_tok_s", "tokens/s"),
    "total_token_rate": ("total_tok_s", "tokens/s"),
    "request_rate": ("request_s", "queries/s"),
}
PARALLEL = {"tp": "tensor", "dp": "data", "ep": "expert", "pp": "pipeline"}
_CONTROL = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def llm_d_files(run: Run) -> dict[str, bytes]:
    """`<trial>.yaml` -> document, of every valid trial whose requests are stored."""
    valid = [
        trial for trial in measured(run) if trial.document["state"] == "ok" and len(trial.requests)
    ]
    return {f"{trial.trial_id}.yaml": _yaml(document(trial)) for trial in valid}


def document(trial: Trial) -> dict[str, object]:
    """The report of one trial as a mapping without a null in it."""
    return {
        "version": VERSION,
        "run": _run(trial),
        "scenario": {"stack": [_engine(trial)], "load": _load(trial)},
        "results": {"request_performance": {"aggregate": _aggregate(trial)}},
    }


def _yaml(found: Mapping[str, object]) -> bytes:
    import yaml

    text = yaml.safe_dump(_printable(finite(found)), sort_keys=False, allow_unicode=True)
    return text.encode()


def _printable(value: object) -> object:
    """Texts without the characters that YAML cannot hold, and mappings without nulls."""
    if isinstance(value, str):
        return _CONTROL.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {_printable(k): _printable(v) for k, v in value.items() if v is not None}
    return [_printable(item) for item in value] if isinstance(value, list) else value


def _run(trial: Trial) -> dict[str, object]:
    summary = trial.run.summary
    return {
        "uid": trial.trial_id,
        "eid": trial.run.run_id,
        "time": _time(trial),
        "description": summary.question or None,
        "keywords": trial.labels or None,
    }


def _time(trial: Trial) -> dict[str, object]:
    start, seconds = str(trial.document["started_utc"]), float(str(trial.document["duration_s"]))
    end = datetime.fromisoformat(start) + timedelta(seconds=seconds)
    return {
        "start": start,
        "end": end.isoformat(timespec="milliseconds"),
        "duration": f"PT{seconds:.3f}S",
    }


def _engine(trial: Trial) -> dict[str, object]:
    engine = dict(trial.point["engine"])
    devices, known, served = _devices(trial), trial.run.summary, engine_of(trial)
    standardized: dict[str, object] = {
        "kind": "generic",
        "tool": served.tool,
        "tool_version": served.version,
        "target": served.target,
        "model": known.model,
        "accelerator": known.accelerator,
    }
    if served.target in STARTED and devices is not None:
        standardized = {
            "kind": "inference_engine",
            "tool": served.tool,
            "tool_version": served.version,
            "role": "replica",
            "replicas": 1,
            "model": {"name": known.model},
            "accelerator": {
                "model": known.accelerator,
                "count": 0 if engine.get("accelerator") == "cpu" else devices,
                "parallelism": _parallelism(engine),
            },
        }
    variables = trial.run.environment.get("environment_variables")
    return {
        "metadata": {"label": served.arm or "engine", "cfg_id": digest(engine)},
        "standardized": standardized,
        "native": {"args": engine, "envars": dict(variables) if variables else None},  # type: ignore[call-overload]
    }


def _devices(trial: Trial) -> int | None:
    """Output over output per device; None where either is missing."""
    total, each = trial.value("output_tok_s"), trial.value("output_tok_s_device")
    return round(total / each) if total and each else None


def _parallelism(engine: Mapping[str, object]) -> dict[str, object]:
    told = {short: engine.get(f"{name}_parallel_size") for short, name in PARALLEL.items()}
    return {name: size for name, size in told.items() if isinstance(size, int)}


def _load(trial: Trial) -> dict[str, object]:
    workload = dict(trial.point["workload"])
    prompts, outputs = (
        trial.requests[name].to_numpy(dtype=float)
        for name in ("prompt_tokens", "requested_output_tokens")
    )
    rate, batch = workload.get("rate"), workload.get("batch_size", workload.get("concurrency"))
    clients = trial.run.plan.get("clients")
    return {
        "metadata": {
            "cfg_id": digest(workload),
            "description": str(workload.get("name", "")) or None,
        },
        "standardized": {
            "tool": TOOL,
            "tool_version": trial.run.code_version,
            "parallelism": clients if isinstance(clients, int) else 1,
            "source": _source(workload),
            "input_seq_len": _lengths(prompts),
            "output_seq_len": _lengths(outputs) if workload.get("exact_output_length") else None,
            "rate_qps": rate if isinstance(rate, int | float) and rate > 0 else None,
            "concurrency": batch if isinstance(batch, int) and batch > 0 else None,
        },
        "native": {"args": workload, "config": {"repeat": trial.document["repeat"]}},
    }


def _source(workload: Mapping[str, object]) -> str:
    content = workload.get("content")
    if content is None:
        return "unknown"
    return "random" if str(content).startswith("random") else "sampled"


def _lengths(values: Array) -> dict[str, object]:
    low, high = int(values.min()), int(values.max())
    if low == high:
        return {"distribution": "fixed", "value": low}
    return {"distribution": "other", "value": float(values.mean()), "min": low, "max": high}


def _aggregate(trial: Trial) -> dict[str, object]:
    latency = {
        name: statistics(trial.samples(family), units)
        for name, (family, units) in LATENCIES.items()
    }
    rates = {
        name: {"units": units, "mean": value}
        for name, (metric, units) in RATES.items()
        if (value := trial.value(metric)) is not None
    }
    return {"requests": _requests(trial), "latency": latency, "throughput": rates}


def _requests(trial: Trial) -> dict[str, object]:
    requests = trial.requests
    cancelled = (requests["finish_reason"] == "abort") & requests["error"].isna()
    counts = {name: statistics(requests[column].to_numpy(dtype=float), "count")
              for name, column in (("input_length", "prompt_tokens"),
                                   ("output_length", "output_tokens"))}  # fmt: skip
    return {
        "total": len(requests),
        "failures": int(requests["error"].notna().sum()),
        "incomplete": int(cancelled.sum()),
        **counts,
    }


def statistics(samples: Array | Sequence[float], units: str) -> dict[str, object] | None:
    """Mean, spread, ends and the percentiles that the samples carry; None of no sample."""
    values = np.asarray(samples, dtype=float)
    if not len(values):
        return None
    found: dict[str, object] = {
        "units": units,
        "mean": float(values.mean()),
        "stddev": deviation(values),
        "min": float(values.min()),
        **{name: quantile(values, share) for name, share in PERCENTILES.items()},
        "max": float(values.max()),
    }
    return {name: value for name, value in found.items() if value is not None}
