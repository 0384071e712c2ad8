"""The metrics of the forms of load as rows."""

from __future__ import annotations

from experiments.metric_rows import Rows

LOAD_FORMS: Rows = (
    (
        "offered_request_s",
        "Offered request rate",
        "req/s",
        "none",
        "rate of window",
        "requests that the schedule wanted sent in the window / window; missing where answers "
        "decide when requests are sent",
    ),
    (
        "queue_s_mean",
        "Time in the client's queue",
        "s",
        "min",
        "mean of requests",
        "how long a request waited after its instant because max_concurrency others were in "
        "flight; part of every latency from schedule",
    ),
    (
        "unsent_requests",
        "Requests never sent",
        "requests",
        "min",
        "count of requests",
        "due while sending went on, and still in the client's queue when the drain time was over",
    ),
    (
        "requested_output_tokens",
        "Output tokens asked for",
        "tok",
        "none",
        "sum of requests",
        "the most that successful requests were allowed; what came is in output_tokens",
    ),
    (
        "prefill_tok_s",
        "Prefill throughput",
        "tok/s",
        "max",
        "rate of rounds",
        "prompt tokens of the rounds of a prefill_step load / the time from the first sending of "
        "each round to the last first token in it",
    ),
    (
        "decode_step_s",
        "Decode step",
        "s",
        "min",
        "mean of chunks",
        "gap between two chunks of one request inside a full-batch window: a step of the engine, "
        "where each step gives every request one chunk",
    ),
    (
        "rounds",
        "Rounds measured",
        "rounds",
        "none",
        "count of rounds",
        "rounds in which every request succeeded and that have a window",
    ),
    (
        "rounds_left_out",
        "Rounds left out",
        "rounds",
        "min",
        "count of rounds",
        "rounds that were cut short, failed in part, or in which one request ended before another "
        "had its first token",
    ),
    (
        "sessions_completed",
        "Sessions completed",
        "sessions",
        "none",
        "count of sessions",
        "conversations of which every turn was answered",
    ),
    (
        "sessions_failed",
        "Sessions failed",
        "sessions",
        "min",
        "count of sessions",
        "conversations in which a turn failed, was given up or was answered with nothing: their "
        "later turns were not asked",
    ),
    (
        "sessions_context_ended",
        "Sessions ended by the context",
        "sessions",
        "none",
        "count of sessions",
        "conversations whose next turn would not have fitted the context",
    ),
    (
        "sessions_unfinished",
        "Sessions unfinished",
        "sessions",
        "none",
        "count of sessions",
        "conversations that still went on when sending stopped",
    ),
)
