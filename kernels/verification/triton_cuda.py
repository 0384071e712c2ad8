"""Verifying drafts in two launches where the highest logit is chosen, in three where one draws.

The logits are read by the kernels of `kernels.sampling.triton_cuda`, which take the rule of a
sequence for all of its rows. What they find is judged by a program a sequence, which leaves one
row of numbers: nothing is expanded, compared or put together by other launches.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.sampling.reference import Choice, SamplingRules
from kernels.sampling.triton_cuda import (
    choose_highest,
    choose_tokens,
    launch_draw,
    launch_highest_of_parts,
    prepared,
)
from kernels.verification.reference import Drafts, Rings, Verdict, each_row, judged


@triton.jit
def count_standing(
    guesses, counts, token, finite, sequence, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """How many leading drafts of a sequence equal the tokens [BLOCK] chosen at their places."""
    at = tl.arange(0, BLOCK)
    is_guess = at < ROWS - 1
    guess = tl.load(guesses + sequence * (ROWS - 1) + at, mask=is_guess, other=-1)
    is_draft = is_guess & (at < tl.load(counts + sequence))
    stands = is_draft & finite & (guess == token)
    return tl.min(tl.where(stands, BLOCK, at), 0).to(tl.int64)  # the last row is no draft


@triton.jit
def judge_highest_kernel(
    tops, part_ids, guesses, counts, row, sequences, parts, ROWS: tl.constexpr,
    BLOCK: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """The highest of the parts of each row of a sequence, and how many drafts stand."""
    sequence = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    part = tl.arange(0, PARTS)
    real = at < ROWS
    here = sequence * ROWS + at
    mask = real[:, None] & (part < parts)[None, :]
    top = tl.load(tops + here[:, None] * parts + part[None, :], mask=mask, other=float("-inf"))
    most, place = tl.max(top, 1, return_indices=True, return_indices_tie_break_left=True)
    finite = (most > float("-inf")) & (most < float("inf"))
    token = tl.load(part_ids + here * parts + place, mask=real & finite, other=0).to(tl.int64)
    tl.store(row + here, token, mask=real)
    tl.store(row + sequences * ROWS + here, finite.to(tl.int64), mask=real)
    accepted = count_standing(guesses, counts, token, finite, sequence, ROWS, BLOCK)
    tl.store(row + sequences * (2 * ROWS) + sequence, accepted)


@triton.jit
def judge_kernel(guesses, counts, row, sequences, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """The same of tokens that were drawn, which the row holds already."""
    sequence = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    here = row + sequence * ROWS + at
    token = tl.load(here, mask=at < ROWS, other=0)
    finite = tl.load(here + sequences * ROWS, mask=at < ROWS, other=0) != 0
    accepted = count_standing(guesses, counts, token, finite, sequence, ROWS, BLOCK)
    tl.store(row + sequences * (2 * ROWS) + sequence, accepted)


@triton.jit(do_not_specialize=["width"])
def keep_kernel(
    ring, lengths, slots, first, tokens, accepted, count, width, old, BLOCK: tl.constexpr
):
    """The tokens of one sequence, and its length."""
    sequence = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + sequence)
    start = tl.load(first + sequence)
    at = tl.arange(0, BLOCK)
    past = start + at + width  # not below 0
    place = past - past // width * width
    token = tl.load(tokens + sequence * count + at, mask=at < count, other=0)
    tl.store(ring + slot * width + place, token, mask=at < count)
    tl.store(lengths + slot, start + old + 1 + tl.load(accepted + sequence))


def verify(logits: Tensor, drafts: Drafts, first: Tensor, rules: SamplingRules | None) -> Verdict:
    """See kernels.verification.reference; logits float32 or bfloat16."""
    sequences, rows, _ = logits.shape
    size = sequences * rows
    row = torch.empty(2 * size + sequences, dtype=torch.int64, device=logits.device)
    verdict = Verdict(row=row, sequences=sequences, rows=rows)
    if not sequences:
        return verdict
    flat = prepared(logits.flatten(0, 1))
    told = (drafts.guesses.contiguous(), drafts.counts.contiguous(), row, sequences)
    block = triton.next_power_of_2(rows)
    if rules is None:
        tops, part_ids = launch_highest_of_parts(flat)
        parts = tops.shape[1]
        judge_highest_kernel[(sequences,)](
            tops, part_ids, *told, parts, ROWS=rows, BLOCK=block,
            PARTS=triton.next_power_of_2(parts), num_warps=1,
        )  # fmt: skip
    else:
        launch_draw(flat, first, rules, Choice(row[:size], row[size : 2 * size]))
        judge_kernel[(sequences,)](*told, ROWS=rows, BLOCK=block, num_warps=1)
    return verdict


def verify_apart(
    logits: Tensor, drafts: Drafts, first: Tensor, rules: SamplingRules | None
) -> Verdict:
    """The same by the kernels that choose, which whole models have used, and launches of torch."""
    flat = logits.flatten(0, 1)
    if rules is None:
        return judged(choose_highest(flat), drafts)
    return judged(choose_tokens(flat, *each_row(first, rules, logits.shape[1])), drafts)


def keep_tokens(
    rings: Rings, slots: Tensor, first: Tensor, tokens: Tensor, accepted: Tensor, new: int
) -> None:
    """See kernels.verification.reference; rings lie in one piece."""
    sequences, count = tokens.shape
    if sequences:
        keep_kernel[(sequences,)](
            rings.tokens, rings.lengths, slots.contiguous(), first.contiguous(),
            tokens.contiguous(), accepted.contiguous(), count, rings.tokens.shape[1], count - new,
            BLOCK=triton.next_power_of_2(count), num_warps=1,
        )  # fmt: skip
