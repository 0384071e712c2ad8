"""What is kept of outputs, so that arms which must agree can be held against each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from experiments.identity import digest
from experiments.records import RequestRecord

MOST_FINGERPRINTS = 256
ASKED_DIGITS, CAME_DIGITS = 12, 8


def fingerprints(requests: Sequence[RequestRecord], temperature: float) -> tuple[str, ...]:
    """`TrialRecord.outputs` of the first 256 requests; none where tokens are drawn by lot."""
    if temperature > 0:
        return ()
    told = (fingerprint(r) for r in requests[:MOST_FINGERPRINTS])
    return tuple(one for one in told if one is not None)


def fingerprint(request: RequestRecord) -> str | None:
    """One of `TrialRecord.outputs`; None where prompt or output is not known."""
    if request.prompt_hash is None or request.text_hash is None:
        return None
    first = asked(request.prompt_hash, request.requested_output_tokens, request.exact_output_length)
    return f"{first}-{request.text_hash[:CAME_DIGITS]}-{request.output_tokens}"


def asked(prompt_hash: str, requested_output_tokens: int, exact_output_length: bool) -> str:
    """The first part of a fingerprint: equal for requests that must be answered alike."""
    return digest(prompt_hash, requested_output_tokens, exact_output_length)[:ASKED_DIGITS]


def kept(requests: Sequence[RequestRecord], most_tokens: int) -> tuple[RequestRecord, ...]:
    """The same requests; ids of outputs beyond the first `most_tokens` are let go.

    Warm-up outputs are never kept: they are part of nothing. Nor are texts: an eval keeps them
    with its answers.
    """
    left = most_tokens
    found: list[RequestRecord] = []
    for request in requests:
        tokens = len(request.output_token_ids or ())
        request = replace(request, output_text=None) if request.output_text else request
        spare = request.warm_up or tokens > left
        left -= 0 if spare else tokens
        found.append(replace(request, output_token_ids=None) if spare and tokens else request)
    return tuple(found)
