"""Log-probabilities in one pass over the logits, where they lie.

Every part of a row tells its highest logit, the sum of its exponentials over that, and its best
tokens; a program a row puts them together. A token and its logit make one number that no other
token has: ordered logits above, ids from the highest down below, so that the greatest number is
the best token and the lowest id among equals.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.logprobs import reference
from kernels.logprobs.reference import LogprobRows
from kernels.sampling.triton_cuda import prepared
from kernels.sampling.triton_parts import logit_of
from kernels.topk.triton_parts import ordered

PART = 4096  # tokens
PART_WARPS = 8
MOST_TOP = 32  # tokens that are found one after another
LAST_ID = tl.constexpr(0x7FFFFFFF)


@triton.jit
def part_kernel(
    logits, rows, highest, sums, best, row_stride, vocab, parts, top, HAS_TOP: tl.constexpr,
    PART: tl.constexpr,
):  # fmt: skip
    """What one part of a row tells."""
    program = tl.program_id(0).to(tl.int64)
    place = program // parts
    token = (program - place * parts).to(tl.int32) * PART + tl.arange(0, PART)
    inside = token < vocab
    here = logits + tl.load(rows + place) * row_stride
    logit = tl.load(here + token, mask=inside, other=float("-inf")).to(tl.float32)
    most = tl.max(logit, 0)
    tl.store(highest + program, most)
    share = tl.where(logit > float("-inf"), tl.exp(logit - most), 0.0)
    tl.store(sums + program, tl.sum(share, 0))
    if HAS_TOP:
        key = (ordered(logit).to(tl.uint64) << 32) | (token ^ LAST_ID).to(tl.uint64)
        key = tl.where(inside, key, 0).to(tl.uint64)
        for number in range(top):
            first = tl.max(key, 0)
            tl.store(best + program * top + number, first)
            key = tl.where(key == first, 0, key).to(tl.uint64)


@triton.jit
def row_kernel(
    logits, rows, token_ids, highest, sums, best, of_token, top_logprobs, top_ids, row_stride,
    parts, top, HAS_TOP: tl.constexpr, PARTS: tl.constexpr, ROOM: tl.constexpr,
):  # fmt: skip
    """What the parts of a row come to."""
    place = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, PARTS)
    real = part < parts
    high = tl.load(highest + place * parts + part, mask=real, other=float("-inf"))
    share = tl.load(sums + place * parts + part, mask=real, other=0.0)
    most = tl.max(high, 0)
    rest = tl.log(tl.sum(share * tl.exp(high - most), 0))
    token = tl.load(token_ids + place)
    logit = tl.load(logits + tl.load(rows + place) * row_stride + token).to(tl.float32)
    tl.store(of_token + place, (logit - most) - rest)
    if HAS_TOP:
        at = tl.arange(0, ROOM)
        key = tl.load(best + place * parts * top + at, mask=at < parts * top, other=0)
        for number in range(top):
            first = tl.max(key, 0)
            logit = logit_of((first >> 32).to(tl.uint32))
            tl.store(top_logprobs + place * top + number, (logit - most) - rest)
            token = (first & 0xFFFFFFFF).to(tl.int64) ^ LAST_ID
            tl.store(top_ids + place * top + number, token)
            key = tl.where(key == first, 0, key).to(tl.uint64)


def log_probabilities(logits: Tensor, rows: Tensor, token_ids: Tensor, top: int) -> LogprobRows:
    """See kernels.logprobs.reference; logits float32 or bfloat16. More than `MOST_TOP` are found
    by the definition.
    """
    count, vocab = len(rows), logits.shape[1]
    top = min(top, vocab)
    if top > MOST_TOP or not count:
        return reference.log_probabilities(logits, rows, token_ids, top)
    logits, device = prepared(logits), logits.device
    parts = triton.cdiv(vocab, PART)
    highest, sums = torch.empty((2, count, parts), device=device)
    of_token = torch.empty(count, device=device)
    top_logprobs = torch.empty((count, top), device=device)
    top_ids = torch.empty((count, top), dtype=torch.int64, device=device)
    best = torch.empty((count, parts * top), dtype=torch.uint64, device=device)
    rows, token_ids = rows.contiguous(), token_ids.contiguous()
    part_kernel[(count * parts,)](
        logits, rows, highest, sums, best, logits.stride(0), vocab, parts, top,
        HAS_TOP=top > 0, PART=PART, num_warps=PART_WARPS,
    )  # fmt: skip
    row_kernel[(count,)](
        logits, rows, token_ids, highest, sums, best, of_token, top_logprobs, top_ids,
        logits.stride(0), parts, top, HAS_TOP=top > 0, PARTS=triton.next_power_of_2(parts),
        ROOM=triton.next_power_of_2(parts * max(top, 1)), num_warps=4,
    )  # fmt: skip
    return LogprobRows(of_token, top_logprobs, top_ids)
