"""Gates on what was asked and what came back."""

from __future__ import annotations

from collections import Counter

from experiments.gate_parts import Evidence, at_most, not_judged, verdict
from experiments.measurement import lost
from experiments.records import Gate, RequestRecord

MOST_OF_A_FORM = 128
"""Tokens that a chat form may add to a prompt, for each turn of it."""


def accounting(evidence: Evidence) -> Gate:
    """Issued = completed + failed + cancelled + lost, and nothing is lost."""
    issued = evidence.measurement.issued
    count = sum(map(lost, issued))
    return verdict(
        "accounting",
        passed=count == 0,
        value=float(count),
        limit=0.0,
        message=f"{count} of {len(issued)} requests never ended",
    )


def error_rate(evidence: Evidence) -> Gate | None:
    """Failed requests of those issued."""
    return at_most(
        "error_rate",
        evidence.metrics.get("error_rate"),
        evidence.limits.error_rate,
        "requests failed",
    )


def enough_requests(evidence: Evidence) -> Gate:
    """As many requests with latencies as the protocol wants a point to rest on.

    Of a workload that is asked whole: every request of it.
    """
    completed = len(evidence.measurement.succeeded)
    needed = evidence.protocol.needed_requests(evidence.batch_size)
    remedy = "; raise protocol.limit_s, measured_s or max_requests"
    asked = evidence.workload.get(ASKED)
    if isinstance(asked, int):
        completed, needed = len(evidence.measurement.completed), asked
        remedy = "; an eval is whole or nothing: raise the workload's limit_s"
    few = completed < needed
    return verdict(
        "enough_requests",
        passed=not few,
        value=float(completed),
        limit=float(needed),
        message=f"{completed} requests completed, {needed} needed{remedy if few else ''}",
    )


def output_length(evidence: Evidence) -> Gate | None:
    """Outputs of another length than promised: `ignore_eos` was lost, or the context ended."""
    limit = evidence.limits.output_length_mismatch
    promised = [r for r in evidence.measurement.succeeded if r.exact_output_length]
    if limit is None or not promised:
        return None
    unlike = sum(r.output_tokens != r.requested_output_tokens for r in promised)
    return verdict(
        "output_length",
        passed=unlike / len(promised) <= limit,
        value=unlike / len(promised),
        limit=limit,
        message=f"{unlike} of {len(promised)} outputs have another length than asked for",
    )


def prompt_length(evidence: Evidence) -> Gate | None:
    """Prompts of another length to the server than to us: two tokenizers, or a template."""
    limit = evidence.limits.prompt_length_mismatch
    told = [r for r in evidence.measurement.succeeded if r.server_prompt_tokens is not None]
    if limit is None or not told:
        return None
    if evidence.workload.get("renders_chat"):
        laid = "the server lays what it is sent into its own chat form, and counts that too"
        return not_judged("prompt_length", None, limit, laid)
    offsets = _chat_form(told) if evidence.renders_chat else {}
    unlike = [r for r in told if _longer(r) != offsets.get(r.turn, 0)]
    sums = sum(map(_longer, unlike))
    return verdict(
        "prompt_length",
        passed=len(unlike) / len(told) <= limit,
        value=len(unlike) / len(told),
        limit=limit,
        message=f"the server counted another length for {len(unlike)} of {len(told)} prompts"
        + (f", by {sums / len(unlike):+.1f} tokens on average" if unlike else "")
        + _offset_words(offsets),
    )


def _longer(request: RequestRecord) -> int:
    return (request.server_prompt_tokens or 0) - request.prompt_tokens


def _chat_form(told: list[RequestRecord]) -> dict[int | None, int]:
    """What a chat form adds to each prompt, by the turn; {} where it is no small constant."""
    turns = {r.turn for r in told}
    usual = {t: Counter(_longer(r) for r in told if r.turn == t).most_common(1) for t in turns}
    found = {turn: counts[0][0] for turn, counts in usual.items()}
    small = all(0 <= more <= MOST_OF_A_FORM * ((turn or 0) + 1) for turn, more in found.items())
    return found if small else {}


def _offset_words(offsets: dict[int | None, int]) -> str:
    low, high = min(offsets.values(), default=0), max(offsets.values(), default=0)
    span = f"{low}" if low == high else f"{low} to {high}, by the turn,"
    return f"; its chat form adds {span} tokens to each, which is allowed for" if high else ""


def unique_prompts(evidence: Evidence) -> Gate | None:
    """Prompts that were asked before, in the warm-up or in the measurement.

    Not judged where the workload has fewer rows than were asked: it repeats by its nature, and
    the gate on cache hits says whether that helped.
    """
    limit = evidence.limits.repeated_prompts
    hashes = [r.prompt_hash for r in evidence.measurement.issued if r.prompt_hash is not None]
    if limit is None or not hashes:
        return None
    repeated = repeats(evidence.warm_up, evidence.measurement.issued)
    share = repeated / len(hashes)
    rows = evidence.workload.get("rows")
    if share > limit and isinstance(rows, int) and rows < len(hashes) + len(evidence.warm_up):
        asked = f"the workload has {rows} rows and {len(hashes)} requests were measured"
        return not_judged("unique_prompts", share, limit, asked)
    return verdict(
        "unique_prompts",
        passed=share <= limit,
        value=share,
        limit=limit,
        message=f"{repeated} of {len(hashes)} prompts had been asked before",
    )


def repeats(warm_up: tuple[RequestRecord, ...], issued: tuple[RequestRecord, ...]) -> int:
    """How many of the issued prompts equal an earlier one."""
    seen = {r.prompt_hash for r in warm_up}
    count = 0
    for request in issued:
        count += request.prompt_hash is not None and request.prompt_hash in seen
        seen.add(request.prompt_hash)
    return count


def cache_hit(evidence: Evidence) -> Gate | None:
    """Prompt tokens from the prefix cache, against the share that the workload means to hit.

    Not judged where prefixes are shared without a stated share, nor from below where the engine
    reports no hit at all, as one without a prefix cache does.
    """
    limits, meant = evidence.limits, _meant_hits(evidence)
    value = evidence.number("cache_hit_rate")
    if limits.cache_hit_rate is None:
        return None
    if meant is None:
        return not_judged(
            "cache_hit", value, limits.cache_hit_rate, "the workload shares prefixes on purpose"
        )
    if not meant:
        found = evidence.metrics.get("cache_hit_rate")
        return at_most(
            "cache_hit", found, limits.cache_hit_rate, "prompt tokens came from the prefix cache"
        )
    return _near(value, meant, limits.cache_hit_rate, limits.cache_hit_shortfall)


def _near(value: float | None, meant: float, above: float, below: float | None) -> Gate:
    if not value:
        return not_judged("cache_hit", value, meant, "the engine reported no cache hit")
    low = 0.0 if below is None else meant - below
    return verdict(
        "cache_hit",
        passed=low <= value <= meant + above,
        value=value,
        limit=meant,
        message=f"{value:.1%} of prompt tokens came from the prefix cache, meant are {meant:.1%}",
    )


def _meant_hits(evidence: Evidence) -> float | None:
    """0 for a workload of unrelated prompts; None where it shares prefixes by no stated share."""
    told = evidence.workload.get(MEANT_HITS)
    if isinstance(told, int | float):
        return float(told)
    return None if evidence.workload.get("shared_prefixes") else 0.0


ASKED = "asked_requests"
"""The workload's fact that holds how many requests make it up."""

MEANT_HITS = "expected_hit_rate"
"""The workload's fact that holds the share an ideal prefix cache would hit."""


def achieved_rate(evidence: Evidence) -> Gate | None:
    """Requests sent of those that the schedule wanted sent; one may hang over the edge.

    Not judged where the client holds requests back on purpose.
    """
    limit, ratio = evidence.limits.rate_shortfall, evidence.metrics.get("request_rate_ratio")
    due = evidence.measurement.due_requests
    if limit is None or not due or ratio is None or ratio.value is None:
        return None
    if evidence.workload.get("max_concurrency") is not None:
        held = "the load bounds the requests in flight, so the client holds some back"
        return not_judged("achieved_rate", ratio.value, 1 - limit, held)
    least = 1 - limit - 1 / due
    return verdict(
        "achieved_rate",
        passed=ratio.value >= least,
        value=ratio.value,
        limit=1 - limit,
        message=f"{ratio.value:.1%} of {due} requests that were due were sent",
    )
