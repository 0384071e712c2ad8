"""What drafting brought, from the tallies of verify steps. Definitions: `METRICS`."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.measurement import Measurement
from experiments.metric_rows import MAX_DRAFT_POSITIONS
from experiments.metric_values import NO_SUCCESS, missing, ratio
from experiments.records import MetricValue, RequestRecord


def speculation(m: Measurement) -> dict[str, MetricValue]:
    """The metrics of drafting, over successful requests."""
    ok = m.succeeded
    none = "no draft was verified" if ok else NO_SUCCESS
    return {
        **_lengths(ok, none),
        **{name: value for i in range(MAX_DRAFT_POSITIONS) for name, value in _at(ok, i).items()},
        "tokens_per_chunk": ratio(
            sum(chunk.tokens for r in ok for chunk in r.chunks),
            sum(len(r.chunks) for r in ok),
            sum(len(r.chunks) for r in ok),
            NO_SUCCESS,
        ),
    }


def _lengths(ok: Sequence[RequestRecord], none: str) -> dict[str, MetricValue]:
    steps = sum(r.verify_steps for r in ok)
    proposed = sum(r.proposed_tokens for r in ok)
    accepted = sum(r.accepted_tokens for r in ok)
    emitted = sum(r.emitted_tokens for r in ok)
    drafted = [r for r in ok if r.verify_steps]
    each = sum(r.emitted_tokens / r.verify_steps for r in drafted)
    return {
        "acceptance_length": ratio(emitted, steps, steps, none),
        "acceptance_length_request": ratio(each, len(drafted), len(drafted), none),
        "acceptance_rate": ratio(accepted, proposed, proposed, none),
        "verify_efficiency": ratio(emitted, proposed + steps, steps, none)
        if steps
        else missing(none),
    }


def _at(ok: Sequence[RequestRecord], place: int) -> dict[str, MetricValue]:
    """Of draft position `place`, counted from 0."""
    proposed = sum(_count(r.proposed_by_position, place) for r in ok)
    reached = sum(_count(r.reached_by_position, place) for r in ok)
    accepted = sum(_count(r.accepted_by_position, place) for r in ok)
    unproposed = "no draft reached this position" if ok else NO_SUCCESS
    unreached = "no draft was accepted up to this position" if ok else NO_SUCCESS
    return {
        f"acceptance_p{place + 1}": ratio(accepted, proposed, proposed, unproposed),
        f"acceptance_c{place + 1}": ratio(accepted, reached, reached, unreached),
    }


def _count(counts: tuple[int, ...], place: int) -> int:
    return counts[place] if place < len(counts) else 0
