"""vLLM's benchmarks: serve, throughput, latency, and the summary of a sweep.

Result files of trtllm-serve, TokenSpeed and InferenceX's raw runs have the form of `bench serve`.
Its "ITL" is the gap between two chunks (ICL here) and its "TPOT" divides by all tokens but one.
Zeros of results in which nothing completed are no numbers.
"""

from __future__ import annotations

from collections.abc import Mapping

from experiments.records import AxisValue, ForeignNumber
from workbench.grouping import LOAD_FIELDS
from workbench.importers.cells import (
    axis,
    count,
    listed,
    mapping,
    number,
    numbers,
    rows,
    text,
    texts,
)
from workbench.importers.document import Document, Form
from workbench.importers.foreign import (
    SERVER,
    Column,
    Family,
    Foreign,
    ForeignPoint,
    Format,
    derived,
    latency_columns,
    leftovers,
    told,
)
from workbench.importers.speeds import HARMONIC, TPOT, speeds

FAMILIES = (
    Family(name="ttft", prefix="ttft_s", meaning="first chunk - sent"),
    Family(name="tpot", prefix="tpot_compat_s", meaning=TPOT),
    Family(name="itl", prefix="icl_s", meaning="gaps between chunks, not tokens, pooled"),
    Family(name="e2el", prefix="e2e_s", meaning="last chunk - sent"),
)
LATENCIES = latency_columns(FAMILIES, lambda s, name: f"{s}_{name}_ms", scale=1e-3)
SERVED = (
    Column(key="output_throughput", metric="output_tok_s", unit="tok/s",
           meaning="output tokens of completed requests / duration, the drain included"),
    Column(key="request_throughput", metric="request_s", unit="req/s",
           meaning="completed requests / duration"),
    Column(key="duration", metric="duration_s", unit="s", meaning="first send to last end"),
    Column(key="completed", metric="completed_requests", unit="requests", meaning="successful"),
    Column(key="failed", metric="failed_requests", unit="requests", meaning="ended in an error"),
    Column(key="total_input_tokens", metric="prompt_tokens", unit="tok",
           meaning="of completed requests"),
    Column(key="total_output_tokens", metric="output_tokens", unit="tok",
           meaning="of completed requests"),
    Column(key="max_concurrent_requests", metric="concurrency_peak", unit="requests",
           meaning="most requests in flight in one second"),
)  # fmt: skip
"""What the clients that descend from this one write, too."""
RATES = (
    *SERVED,
    Column(key="total_token_throughput", metric="total_tok_s", unit="tok/s",
           meaning="(prompt + output tokens) of completed requests / duration"),
    Column(key="request_goodput", metric="goodput", unit="req/s",
           meaning="requests within the given limits / duration"),
    Column(key="request_goodput:", metric="goodput", unit="req/s",
           meaning="requests within the given limits / duration"),
    Column(key="spec_decode_acceptance_length", metric="acceptance_length", unit="tok/step",
           meaning="1 + accepted / drafts, from the server's counters", side=SERVER),
    Column(key="spec_decode_acceptance_rate", metric="acceptance_rate", unit="", scale=0.01,
           meaning="accepted / proposed, per cent in the file", side=SERVER),
)  # fmt: skip
MEAN_TPOT = Column(key="", metric="tpot_compat_s_mean", unit="s", meaning=f"mean of {TPOT}")
MEAN_E2E = Column(key="", metric="e2e_s_mean", unit="s", meaning="mean of TTFT + sum of gaps")
CHUNKS = Column(
    key="", metric="tokens_per_chunk", unit="tok",
    meaning="output tokens / (gaps between chunks + 1 a request)",
)  # fmt: skip
IDENTITY = ("model_id", "backend", "endpoint_type", "request_rate", "max_concurrency", "burstiness")


def _is_serve(document: Document) -> bool:
    row = mapping(document.value)
    return document.form is Form.JSON and _is_result(row)


def _is_result(row: Mapping[str, object]) -> bool:
    """A form that is alike has its times in seconds, under `median_ttft`."""
    needed = {"duration", "completed", "request_throughput", "total_input_tokens"}
    told_by = {"total_token_throughput", "mean_ttft_ms", "request_rate"}
    return needed <= row.keys() and bool(told_by & row.keys()) and "median_ttft" not in row


def _read_serve(document: Document) -> Foreign:
    return Foreign(points=(serve_point(mapping(document.value)),))


def _is_sweep(document: Document) -> bool:
    found = rows(document.value)
    return document.form is Form.JSON and bool(found) and all(
        _is_result(row) and "run_number" in row for row in found
    )  # fmt: skip


def _read_sweep(document: Document) -> Foreign:
    found = rows(document.value)
    return Foreign(points=tuple(map(serve_point, found)))


def serve_point(row: Mapping[str, object]) -> ForeignPoint:
    """One result of `bench serve`, whoever wrote it."""
    done = count(row.get("completed"))
    found = told(row, (*LATENCIES, *RATES), done)
    known = {one.metric for one in found if one.value is not None}
    if done != 0:
        extra = (*speeds(found), *_from_details(row))
        found += tuple(one for one in extra if one.metric not in known)
    taken = {*(one.key for one in found), *IDENTITY, "run_number"}
    return ForeignPoint(
        engine=_engine(row),
        workload=_load(row),
        numbers=found + leftovers(row, taken),
        samples=done,
        failed=count(row.get("failed")),
        invalid=_doubt(row),
        labels=texts(row.get("workbench_labels")),
        repeat=count(row.get("run_number", row.get("workbench_repeat"))) or 0,
        duration_s=number(row.get("duration")),
    )


def _doubt(row: Mapping[str, object]) -> str | None:
    """Why a trial of our own export did not pass its gates."""
    if row.get("workbench_state") != "invalid":
        return None
    return text(row.get("workbench_reason")) or "invalid, no reason kept"


def _engine(row: Mapping[str, object]) -> dict[str, AxisValue]:
    """The model, who served, and what our own export keeps of its point's axes."""
    axes = mapping(row.get("workbench_axes"))
    ours = {name: axis(value) for name, value in axes.items() if name not in LOAD_FIELDS}
    framework = text(row.get("backend")) or text(row.get("endpoint_type"))
    found = {**ours, "model": text(row.get("model_id")), "framework": framework}
    return {name: value for name, value in found.items() if value is not None}


def _load(row: Mapping[str, object]) -> dict[str, AxisValue]:
    """How requests were sent; a rate is never a number of users."""
    rate, most = number(row.get("request_rate")), count(row.get("max_concurrency"))
    if rate is not None:
        shape = number(row.get("burstiness"))
        even = shape is None or shape == 1.0
        found: dict[str, AxisValue] = {"load": "poisson" if even else "gamma", "rate": rate,
                                       "max_concurrency": most}  # fmt: skip
        return found if even else {**found, "shape": shape}
    if most is not None:
        return {"load": "closed", "batch_size": most}
    return {"load": "all at once", "requests": count(row.get("num_prompts"))}


def _from_details(row: Mapping[str, object]) -> tuple[ForeignNumber, ...]:
    """What `--save-detailed` lets be computed; nothing where its lists do not fit together."""
    firsts, lengths = numbers(row.get("ttfts")), numbers(row.get("output_lens"))
    gaps = [numbers(one) for one in listed(row.get("itls"))]
    if not firsts or not len(firsts) == len(lengths) == len(gaps):
        return ()
    done = [one for one in zip(firsts, gaps, lengths, strict=True) if one[2] > 0]
    decodes = [(sum(own), n - 1) for _, own, n in done if n > 1 and sum(own) > 0]
    if not decodes:
        return ()
    time_s, tokens = (sum(one[k] for one in decodes) for k in range(2))
    e2e = [first + sum(own) for first, own, _ in done]
    chunks = sum(len(own) + 1 for _, own, _ in done)
    source = "itls, output_lens"
    return (
        derived(source, sum(t / n for t, n in decodes) / len(decodes), MEAN_TPOT),
        derived(f"ttfts, {source}", sum(e2e) / len(e2e), MEAN_E2E),
        derived(source, tokens / time_s, HARMONIC),
        derived(source, sum(n for _, _, n in done) / chunks, CHUNKS),
    )


def _is_throughput(document: Document) -> bool:
    row = mapping(document.value)
    return {"elapsed_time", "num_requests", "total_num_tokens", "tokens_per_second"} <= row.keys()


THROUGHPUT = (
    Column(key="tokens_per_second", metric="total_tok_s", unit="tok/s",
           meaning="(prompt + output tokens) / elapsed time, offline", side="timed in process"),
    Column(key="requests_per_second", metric="request_s", unit="req/s",
           meaning="requests / elapsed time, offline", side="timed in process"),
    Column(key="elapsed_time", metric="duration_s", unit="s", meaning="of the whole batch",
           side="timed in process"),
    Column(key="num_requests", metric="completed_requests", unit="requests", meaning="all of them",
           side="timed in process"),
)  # fmt: skip


def _read_throughput(document: Document) -> Foreign:
    row = mapping(document.value)
    done = count(row.get("num_requests"))
    found = told(row, THROUGHPUT, done)
    point = ForeignPoint(
        engine=_engine(row) | {"framework": "vllm"},
        workload={"load": "all at once", "requests": done},
        numbers=found + leftovers(row, {*(one.key for one in found), "model_id"}),
        samples=done,
        duration_s=number(row.get("elapsed_time")),
    )
    return Foreign(points=(point,))


def _is_latency(document: Document) -> bool:
    row = mapping(document.value)
    return {"avg_latency", "latencies", "percentiles"} <= row.keys()


def _read_latency(document: Document) -> Foreign:
    row = mapping(document.value)
    shares = mapping(row.get("percentiles"))
    side = "timed in process"
    meaning = "one batch from its prompts to its last token, an iteration a sample"
    columns = [Column(key=name, metric=f"e2e_s_p{name}", unit="s", meaning=meaning, side=side)
               for name in ("50", "90", "99")]  # fmt: skip
    mean = Column(key="avg_latency", metric="e2e_s_mean", unit="s", meaning=meaning, side=side)
    n = len(listed(row.get("latencies")))
    found = told(row, [mean], n) + told(shares, columns, n)
    other = leftovers(row, {"avg_latency", "model_id"}) + leftovers(shares, {"50", "90", "99"})
    point = ForeignPoint(
        engine=_engine(row) | {"framework": "vllm"},
        workload={"load": "batch"},
        numbers=found + other,
        samples=n,
    )
    return Foreign(points=(point,))


FORMATS = (
    Format(name="vllm-sweep", tool="vLLM bench sweep", title="a vLLM sweep summary",
           recognises=_is_sweep, read=_read_sweep, seen=False,
           expects="JSON list of `bench serve` results with `run_number`"),
    Format(name="vllm-serve", tool="vLLM bench serve", title="a `vllm bench serve` result",
           recognises=_is_serve, read=_read_serve,
           expects="JSON with `completed`, `duration`, `total_input_tokens`"),
    Format(name="vllm-throughput", tool="vLLM bench throughput",
           title="a `vllm bench throughput` result", recognises=_is_throughput,
           read=_read_throughput, seen=False,
           expects="JSON with `elapsed_time`, `num_requests`, `total_num_tokens`"),
    Format(name="vllm-latency", tool="vLLM bench latency", title="a `vllm bench latency` result",
           recognises=_is_latency, read=_read_latency, seen=False,
           expects="JSON with `avg_latency`, `latencies`, `percentiles`"),
)  # fmt: skip
