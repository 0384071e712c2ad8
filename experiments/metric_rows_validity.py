"""Rows of metrics that tell whether a trial, or a pair of arms, can be trusted."""

from __future__ import annotations

from experiments.metric_rows import Rows

ACCOUNTS: Rows = (
    (
        "issued_requests",
        "Issued requests",
        "requests",
        "none",
        "count of requests",
        "sent, warm-up aside: completed + failed + cancelled + lost",
    ),
    (
        "lost_requests",
        "Lost requests",
        "requests",
        "min",
        "count of requests",
        "sent and never heard of again: no end, no error, no cancellation",
    ),
    (
        "distinct_prompts",
        "Distinct prompts",
        "prompts",
        "none",
        "count of requests",
        "prompts of issued requests that differ from each other in any token",
    ),
    (
        "ramp_s",
        "Dropped ramp",
        "s",
        "none",
        "length of window",
        "time cut off in front of the window because throughput had not settled (MSER-5 on bins "
        "of 1 s); 0 where it had from the start; missing in a window too short to tell",
    ),
    (
        "drift",
        "Drift of throughput",
        "",
        "none",
        "slope of window",
        "slope of a straight line through output tokens a second x window / mean; 0.05: 5 % more "
        "at the end than at the beginning",
    ),
)

AGREEMENT: Rows = (
    (
        "equal_outputs",
        "Outputs equal to the reference's",
        "",
        "max",
        "ratio of requests",
        "greedy outputs that equal, token by token, those of the trial of this run that the "
        "configuration must agree with / requests that both were asked",
    ),
    (
        "token_flip_rate",
        "Token flips against the reference",
        "",
        "min",
        "ratio of tokens",
        "requests whose greedy outputs differ from the reference's / tokens compared, each output "
        "up to and with its first difference",
    ),
    (
        "token_flip_rate_off",
        "Token flips against full prefill",
        "",
        "none",
        "ratio of tokens",
        "as the flips against the reference, held against the trial of this run with replay_mode "
        "off: what decoder truncation changes; never a reason to refuse a trial",
    ),
    (
        "equal_outputs_arm",
        "Outputs equal to the reference arm's",
        "",
        "none",
        "ratio of requests",
        "greedy outputs that equal, token by token, those of the plan's reference arm / requests "
        "that both were asked; engines that round differently part at near ties",
    ),
    (
        "token_flip_rate_arm",
        "Token flips against the reference arm",
        "",
        "none",
        "ratio of tokens",
        "as the flips against the reference, held against the plan's reference arm: how often "
        "another engine chose another token; never a reason to refuse a trial",
    ),
)
