"""Request records with known times, made by hand."""

from experiments.measurement import Measurement
from experiments.records import Chunk, RequestRecord


def request(chunks, *, sent_s=0.0, index=0, **fields):
    """chunks: (time, tokens) pairs; a successful request unless fields say otherwise."""
    tokens = sum(n for _, n in chunks)
    values = {
        "request_id": f"r{index}",
        "index": index,
        "intended_s": sent_s,
        "dispatched_s": sent_s,
        "sent_s": sent_s,
        "chunks": tuple(Chunk(time_s=t, tokens=n) for t, n in chunks),
        "ended_s": chunks[-1][0] if chunks else None,
        "finish_reason": "length",
        "error": None,
        "prompt_tokens": 10,
        "output_tokens": tokens,
        "requested_output_tokens": tokens,
    }
    return RequestRecord(**{**values, **fields})


def measurement(requests, window_s=(0.0, 10.0), devices=1, **fields):
    return Measurement(requests=tuple(requests), window_s=window_s, devices=devices, **fields)


def failed(index=0, sent_s=0.0, **fields):
    return (
        request(
            [],
            index=index,
            sent_s=sent_s,
            finish_reason="error",
            error="HTTP 500",
            ended_s=sent_s + 1,
        )
        if not fields
        else request([], index=index, sent_s=sent_s, **fields)
    )


def rechunked(first_s, tpot_s, tokens, size, sent_s=0.0):
    """One token at `first_s`, then `tokens` more, `size` a chunk, sent when its last is made."""
    chunks, made = [(first_s, 1)], 0
    while made < tokens:
        take = min(size, tokens - made)
        made += take
        chunks.append((first_s + made * tpot_s, take))
    return chunks
