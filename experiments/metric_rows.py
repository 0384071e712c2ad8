"""The metrics as rows: name, label, unit, direction, statistic and basis, exact definition."""

from __future__ import annotations

Row = tuple[str, str, str, str, str, str]
Rows = tuple[Row, ...]
MAX_DRAFT_POSITIONS = 5
PERCENTILE_RULE = "numpy linear quantile, shown from n >= 2 ceil(1 / (1 - p)) samples"

RATES: Rows = (
    (
        "output_tok_s",
        "Output throughput",
        "tok/s",
        "max",
        "rate of window",
        "output tokens whose chunk arrived inside the measurement window / window",
    ),
    (
        "output_tok_s_device",
        "Output throughput per device",
        "tok/s/device",
        "max",
        "rate of window",
        "output throughput / devices allocated to the configuration, idle ones too; the "
        "processors of a CPU host are one device",
    ),
    (
        "total_tok_s",
        "Total throughput",
        "tok/s",
        "max",
        "rate of window",
        "(output tokens by chunk time + prompt tokens of requests whose first chunk arrived "
        "inside the window) / window",
    ),
    (
        "request_s",
        "Request throughput",
        "req/s",
        "max",
        "rate of window",
        "requests that ended successfully inside the window / window",
    ),
    (
        "achieved_request_s",
        "Achieved request rate",
        "req/s",
        "none",
        "rate of window",
        "requests sent inside the window / window",
    ),
    (
        "request_rate_ratio",
        "Achieved share of the request rate",
        "",
        "max",
        "ratio of window",
        "requests sent inside the window / requests that the schedule wanted sent in it",
    ),
    (
        "goodput",
        "Goodput",
        "req/s",
        "max",
        "rate of window",
        "requests that ended inside the window and met every limit of the plan's slo / window",
    ),
    (
        "goodput_fraction",
        "Share of requests within the slo",
        "",
        "max",
        "ratio of requests",
        "requests that met every limit of the plan's slo / issued requests, failed ones too; a "
        "request of one token meets any limit of TPOT",
    ),
    (
        "tok_s_user",
        "Interactivity",
        "tok/s/user",
        "max",
        "harmonic of requests",
        "sum(output tokens - tokens of the first chunk) / sum(E2E - TTFT) over requests that "
        "have a TPOT",
    ),
    (
        "tok_s_user_p50",
        "Interactivity p50",
        "tok/s/user",
        "max",
        "p50 of requests",
        f"median over requests of 1 / TPOT; {PERCENTILE_RULE}",
    ),
    (
        "tok_s_user_p1",
        "Interactivity of the slowest 1 %",
        "tok/s/user",
        "max",
        "p1 of requests",
        f"1 / p99(TPOT): the first percentile of speed; {PERCENTILE_RULE}",
    ),
)

SPECULATION: Rows = (
    (
        "acceptance_length",
        "Acceptance length",
        "tok/step",
        "max",
        "ratio of steps",
        "tokens that verify steps emitted, the bonus token included / verify steps; up to draft "
        "length + 1; a step that the end of the request cuts emits fewer",
    ),
    (
        "acceptance_length_request",
        "Acceptance length, mean of requests",
        "tok/step",
        "max",
        "mean of requests",
        "acceptance length of each request that verified a draft; arithmetic mean",
    ),
    (
        "acceptance_rate",
        "Acceptance rate",
        "",
        "max",
        "ratio of tokens",
        "accepted / proposed draft tokens; falls with the draft length, so compare it only "
        "between equal draft lengths",
    ),
    *(
        (
            f"acceptance_p{position}",
            f"Acceptance at position {position}",
            "",
            "max",
            "ratio of steps",
            f"verify steps that accepted draft token {position} / verify steps that proposed it",
        )
        for position in range(1, MAX_DRAFT_POSITIONS + 1)
    ),
    *(
        (
            f"acceptance_c{position}",
            f"Acceptance at position {position}, given those before",
            "",
            "max",
            "ratio of steps",
            f"steps that accepted draft token {position} / steps that reached and proposed it",
        )
        for position in range(1, MAX_DRAFT_POSITIONS + 1)
    ),
    (
        "verify_efficiency",
        "Verify efficiency",
        "",
        "max",
        "ratio of tokens",
        "tokens that verify steps emitted / (proposed draft tokens + verify steps)",
    ),
    (
        "tokens_per_chunk",
        "Tokens per chunk",
        "tok",
        "none",
        "ratio of chunks",
        "output tokens / chunks that bear tokens",
    ),
)

LOAD: Rows = (
    (
        "concurrency_mean",
        "Concurrency",
        "requests",
        "none",
        "mean of window",
        "time average over the window of requests in flight (sent, last chunk not received)",
    ),
    (
        "concurrency_peak",
        "Peak concurrency",
        "requests",
        "none",
        "max of window",
        "most requests in flight at once inside the window",
    ),
    (
        "littles_law",
        "Little's law ratio",
        "",
        "none",
        "ratio of window",
        "X E[E2E] / N with X the mean of the send and completion rates of the window (each edge "
        "counts half), N the mean concurrency; 1 when requests are accounted for",
    ),
    ("prompt_tokens", "Prompt tokens", "tok", "none", "sum of requests", "of successful requests"),
    ("output_tokens", "Output tokens", "tok", "none", "sum of requests", "of successful requests"),
    (
        "completed_requests",
        "Completed requests",
        "requests",
        "none",
        "count of requests",
        "ended without an error and with at least one token",
    ),
    (
        "failed_requests",
        "Failed requests",
        "requests",
        "min",
        "count of requests",
        "ended with an error or without a token; lost ones are counted apart",
    ),
    (
        "cancelled_requests",
        "Cancelled requests",
        "requests",
        "none",
        "count of requests",
        "aborted by the client because the drain time was over",
    ),
    ("error_rate", "Error rate", "", "min", "ratio of requests", "(failed + lost) / issued"),
    (
        "duration_s",
        "Measured time",
        "s",
        "none",
        "length of window",
        "from the first send to the end of sending; the drain lies outside",
    ),
)

ENGINE: Rows = (
    (
        "cache_hit_rate",
        "Prefix cache hit rate",
        "",
        "none",
        "ratio of tokens",
        "cached prompt tokens / prompt tokens of successful requests",
    ),
    (
        "preemptions",
        "Preemptions",
        "",
        "min",
        "sum of requests",
        "how often a sequence was set back",
    ),
    (
        "decoder_rows_run",
        "Decoder rows run",
        "rows",
        "none",
        "sum of steps",
        "rows that the decoder half of the model ran during the measured phase",
    ),
    (
        "decoder_rows_skipped",
        "Decoder rows skipped",
        "rows",
        "none",
        "sum of steps",
        "prompt rows that decoder truncation spared during the measured phase",
    ),
    (
        "decoder_rows_skipped_share",
        "Share of decoder rows skipped",
        "",
        "max",
        "ratio of steps",
        "decoder rows skipped / (run + skipped)",
    ),
    (
        "cpu_percent",
        "Host CPU",
        "%",
        "none",
        "mean of host",
        "busy share of all cores, 100 = all busy",
    ),
    (
        "memory_peak_bytes",
        "Peak memory of the engine",
        "B",
        "min",
        "max of host",
        "largest resident memory of this process and its replicas",
    ),
)
