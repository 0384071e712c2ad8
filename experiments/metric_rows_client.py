"""The metrics of the client as rows: what it costs, and what it and the server count."""

from __future__ import annotations

from experiments.metric_rows import PERCENTILE_RULE, Rows

CLIENT: Rows = (
    (
        "client_lag_s_p50",
        "Sent late p50",
        "s",
        "min",
        "p50 of requests",
        "writing of a request's body began - the instant at which it could leave the client; "
        f"missing where the engine runs in this process; {PERCENTILE_RULE}",
    ),
    (
        "client_lag_s_p99",
        "Sent late p99",
        "s",
        "min",
        "p99 of requests",
        f"as client_lag_s_p50; {PERCENTILE_RULE}",
    ),
    (
        "client_cpu_percent",
        "Busiest client",
        "% of a core",
        "min",
        "mean of window",
        "processor time of the client process that took most, over time, in steps of 0.25 s; "
        "missing where the engine runs in this process",
    ),
    (
        "resent_requests",
        "Requests sent twice",
        "requests",
        "min",
        "count of requests",
        "written again on a fresh connection, because the server had closed the kept one before "
        "any answer; their times count from the first writing; missing where nothing is sent "
        "over HTTP",
    ),
    (
        "retokenised_ratio",
        "Tokens by the client's tokenizer",
        "",
        "none",
        "ratio of requests",
        "tokens of the output text under the client's tokenizer / as counted; far below 1: text "
        "that tokenises to less than what was generated",
    ),
    (
        "server_prompt_ratio",
        "Prompt as the server counts",
        "",
        "none",
        "ratio of requests",
        "prompt tokens that the server reports / that were asked for; a chat template adds its own",
    ),
    (
        "server_tpot_ratio",
        "TPOT as the server counts",
        "",
        "none",
        "ratio of means",
        "mean time per output token by the server's own histogram under metrics_path, drain "
        "included / the same by the clients; far from 1: one of them counts steps, not tokens",
    ),
)
