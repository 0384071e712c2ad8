"""The metrics this bench knows: name, label, unit, direction and exact definition of each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Direction(StrEnum):
    """Which way is better."""

    MAX = "max"
    MIN = "min"
    NONE = "none"


@dataclass(frozen=True, kw_only=True)
class MetricSpec:
    """What one number means. A label drawn anywhere comes from here."""

    name: str
    label: str
    unit: str  # of the stored value: seconds, tokens, tokens/s, ...
    direction: Direction
    statistic: str  # mean, p50, ..., sum, ratio
    basis: str  # of what: requests, tokens, chunks, window, steps, host
    definition: str


QUANTILES = {"p50": 0.50, "p90": 0.90, "p99": 0.99}
MAX_DRAFT_POSITIONS = 5

FAMILIES = {
    "ttft_s": (
        "TTFT",
        "requests",
        "first chunk that bears a token - sent",
    ),
    "ttft_sched_s": (
        "TTFT from schedule",
        "requests",
        "first chunk that bears a token - the instant the schedule wanted the request sent",
    ),
    "tpot_s": (
        "TPOT",
        "requests",
        "(E2E - TTFT) / (output tokens - tokens of the first chunk), one value a request; "
        "missing where the first chunk holds the whole output",
    ),
    "itl_s": (
        "ITL",
        "tokens",
        "a gap g before a chunk of n tokens counts as n samples of g / n; pooled",
    ),
    "icl_s": ("ICL", "chunks", "gap between two chunks that bear tokens; pooled"),
    "e2e_s": ("E2E", "requests", "last chunk that bears a token - sent"),
    "e2e_sched_s": (
        "E2E from schedule",
        "requests",
        "last chunk that bears a token - the instant the schedule wanted the request sent",
    ),
}
"""Latency families by prefix of their metric names: label, basis, definition of one sample."""

_PERCENTILE_RULE = "numpy linear quantile, shown from n >= 2 ceil(1 / (1 - p)) samples"


def _latency(prefix: str) -> list[MetricSpec]:
    label, basis, definition = FAMILIES[prefix]
    return [
        MetricSpec(
            name=f"{prefix}_{statistic}",
            label=f"{label} {statistic}",
            unit="s",
            direction=Direction.MIN,
            statistic=statistic,
            basis=basis,
            definition=definition
            + ("; arithmetic mean" if statistic == "mean" else f"; {_PERCENTILE_RULE}"),
        )
        for statistic in ("mean", *QUANTILES)
    ]


def _adjusted(statistic: str) -> MetricSpec:
    return MetricSpec(
        name=f"e2e_s_{statistic}_adj",
        label=f"E2E {statistic}, failures as infinite",
        unit="s",
        direction=Direction.MIN,
        statistic=statistic,
        basis="all requests",
        definition="E2E with every failed or cancelled request at +infinity; numpy `higher` "
        "quantile, missing where it falls on infinity",
    )


def _row(
    name: str, label: str, unit: str, direction: str, statistic_basis: str, definition: str
) -> MetricSpec:
    statistic, basis = statistic_basis.split(" of ")
    return MetricSpec(
        name=name,
        label=label,
        unit=unit,
        direction=Direction(direction),
        statistic=statistic,
        basis=basis,
        definition=definition,
    )


_RATES = [
    _row(
        "output_tok_s",
        "Output throughput",
        "tok/s",
        "max",
        "rate of window",
        "output tokens whose chunk arrived inside the measurement window / window",
    ),
    _row(
        "output_tok_s_device",
        "Output throughput per device",
        "tok/s/device",
        "max",
        "rate of window",
        "output throughput / devices allocated to the configuration, idle ones too; the "
        "processors of a CPU host are one device",
    ),
    _row(
        "total_tok_s",
        "Total throughput",
        "tok/s",
        "max",
        "rate of window",
        "(output tokens by chunk time + prompt tokens of requests whose first chunk arrived "
        "inside the window) / window",
    ),
    _row(
        "request_s",
        "Request throughput",
        "req/s",
        "max",
        "rate of window",
        "requests that ended successfully inside the window / window",
    ),
    _row(
        "achieved_request_s",
        "Achieved request rate",
        "req/s",
        "none",
        "rate of window",
        "requests sent inside the window / window",
    ),
    _row(
        "tok_s_user",
        "Interactivity",
        "tok/s/user",
        "max",
        "harmonic of requests",
        "sum(output tokens - tokens of the first chunk) / sum(E2E - TTFT) over requests that "
        "have a TPOT",
    ),
    _row(
        "tok_s_user_p50",
        "Interactivity p50",
        "tok/s/user",
        "max",
        "p50 of requests",
        f"median over requests of 1 / TPOT; {_PERCENTILE_RULE}",
    ),
    _row(
        "tok_s_user_p1",
        "Interactivity of the slowest 1 %",
        "tok/s/user",
        "max",
        "p1 of requests",
        f"1 / p99(TPOT): the first percentile of speed; {_PERCENTILE_RULE}",
    ),
]

_SPECULATION = [
    _row(
        "acceptance_length",
        "Acceptance length",
        "tok/step",
        "max",
        "ratio of steps",
        "(accepted + verify steps) / verify steps: tokens a verify step emits, the bonus token "
        "included; 1 to draft length + 1",
    ),
    _row(
        "acceptance_rate",
        "Acceptance rate",
        "",
        "max",
        "ratio of tokens",
        "accepted / proposed draft tokens; falls with the draft length, so compare it only "
        "between equal draft lengths",
    ),
    *(
        _row(
            f"acceptance_p{position}",
            f"Acceptance at position {position}",
            "",
            "max",
            "ratio of steps",
            f"verify steps that accepted draft token {position} / verify steps that proposed it",
        )
        for position in range(1, MAX_DRAFT_POSITIONS + 1)
    ),
    _row(
        "verify_efficiency",
        "Verify efficiency",
        "",
        "max",
        "ratio of tokens",
        "(accepted + verify steps) / (proposed + verify steps): tokens emitted / verified",
    ),
    _row(
        "tokens_per_chunk",
        "Tokens per chunk",
        "tok",
        "none",
        "ratio of chunks",
        "output tokens / chunks that bear tokens",
    ),
]

_LOAD = [
    _row(
        "concurrency_mean",
        "Concurrency",
        "requests",
        "none",
        "mean of window",
        "time average over the window of requests in flight (sent, last chunk not received)",
    ),
    _row(
        "concurrency_peak",
        "Peak concurrency",
        "requests",
        "none",
        "max of window",
        "most requests in flight at once inside the window",
    ),
    _row(
        "littles_law",
        "Little's law ratio",
        "",
        "none",
        "ratio of window",
        "X E[E2E] / N with X the mean of the send and completion rates of the window (each edge "
        "counts half), N the mean concurrency; 1 when requests are accounted for",
    ),
    _row(
        "prompt_tokens", "Prompt tokens", "tok", "none", "sum of requests", "of successful requests"
    ),
    _row(
        "output_tokens", "Output tokens", "tok", "none", "sum of requests", "of successful requests"
    ),
    _row(
        "completed_requests",
        "Completed requests",
        "requests",
        "none",
        "count of requests",
        "ended without an error and with at least one token",
    ),
    _row(
        "failed_requests",
        "Failed requests",
        "requests",
        "min",
        "count of requests",
        "ended with an error or without a token",
    ),
    _row(
        "cancelled_requests",
        "Cancelled requests",
        "requests",
        "none",
        "count of requests",
        "aborted by the client because the drain time was over",
    ),
    _row("error_rate", "Error rate", "", "min", "ratio of requests", "failed / issued requests"),
    _row(
        "duration_s",
        "Measured time",
        "s",
        "none",
        "length of window",
        "from the first send to the end of sending; the drain lies outside",
    ),
]

_ENGINE = [
    _row(
        "cache_hit_rate",
        "Prefix cache hit rate",
        "",
        "none",
        "ratio of tokens",
        "cached prompt tokens / prompt tokens of successful requests",
    ),
    _row(
        "preemptions",
        "Preemptions",
        "",
        "min",
        "sum of requests",
        "how often a sequence was set back",
    ),
    _row(
        "decoder_rows_run",
        "Decoder rows run",
        "rows",
        "none",
        "sum of steps",
        "rows that the decoder half of the model ran during the measured phase",
    ),
    _row(
        "decoder_rows_skipped",
        "Decoder rows skipped",
        "rows",
        "none",
        "sum of steps",
        "prompt rows that decoder truncation spared during the measured phase",
    ),
    _row(
        "decoder_rows_skipped_share",
        "Share of decoder rows skipped",
        "",
        "max",
        "ratio of steps",
        "decoder rows skipped / (run + skipped)",
    ),
    _row(
        "energy_j_token",
        "Energy per output token",
        "J/tok",
        "min",
        "ratio of window",
        "energy counters of all allocated devices over the window / output tokens in it",
    ),
    _row(
        "cpu_percent",
        "Host CPU",
        "%",
        "none",
        "mean of host",
        "busy share of all cores, 100 = all busy",
    ),
    _row(
        "memory_peak_bytes",
        "Peak memory of the engine",
        "B",
        "min",
        "max of host",
        "largest resident memory of this process and its replicas",
    ),
]

METRICS: dict[str, MetricSpec] = {
    spec.name: spec
    for spec in (
        *_RATES,
        *(spec for prefix in FAMILIES for spec in _latency(prefix)),
        _adjusted("p90"),
        _adjusted("p99"),
        *_SPECULATION,
        *_LOAD,
        *_ENGINE,
    )
}
"""Every metric by name, in the order in which tables show them."""
