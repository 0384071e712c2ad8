"""Cases of verifying drafts. See `kernels.cases`."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from kernels.case import Arguments, Case, Run, normal
from kernels.cases_selection import rules_by_row
from kernels.verification.reference import Drafts, Rings, Verdict, verify

Way = Literal["greedy", "seeded", "narrowed"]
FEWER_ROWS = (0, 1, 3, 17, 128)  # sequences: the definition sorts their rows in float64
STANDING = 0.7  # of the guesses that are what is chosen, so that all lengths are accepted


def verify_case(vocab: int, drafts: int, way: Way) -> Case:
    """Sequences with every number of drafts, of which most stand; in one of five, a row that is
    not finite; where one draws, temperatures, seeds and narrowing differ by sequence.
    """

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        logits = 3 * normal((rows, drafts + 1, vocab), dtype, device)
        logits[::5, drafts // 2, vocab // 2] = torch.nan
        first = torch.randint(0, 100_000, (rows,), device=device)
        rules = None
        if way != "greedy":
            rules = rules_by_row(vocab, rows, 50, device)
            rules = rules if way == "narrowed" else replace(rules, narrowing=None)
        all_drafts = torch.full((rows,), drafts, device=device)
        any_token = torch.randint(0, vocab, (rows, drafts), device=device)
        guessed = Drafts(guesses=any_token, counts=all_drafts)
        chosen = verify(logits, guessed, first, rules).token_ids[:, :-1]
        stands = torch.rand(rows, drafts, device=device) < STANDING
        drawn = Drafts(
            guesses=torch.where(stands, chosen, any_token),
            counts=torch.randint(0, drafts + 1, (rows,), device=device),
        )
        return logits, drawn, first, rules

    return Case(
        op="verify",
        name=f"{drafts} drafts of {vocab}, {way}",
        make=make,
        bytes_per_row=lambda size: (drafts + 1) * (vocab * size + 24) + 24,
        observe=_observed,
        timed_rows=(1, 32, 128),
    )


def keep_case(count: int, new: int, width: int) -> Case:
    """Slots in any order; some positions below 0."""

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        del dtype  # all of it is whole numbers
        rings = Rings(
            tokens=torch.full((rows + 3, width), -7, device=device),
            lengths=torch.full((rows + 3,), -7, device=device),
        )
        slots = torch.randperm(rows + 3, device=device)[:rows]
        first = torch.randint(new - count, 100_000, (rows,), device=device)
        first[::2] = new - count
        tokens = torch.randint(0, 1000, (rows, count), device=device)
        accepted = torch.randint(0, new, (rows,), device=device)
        return slots, first, tokens, accepted, rings, new

    def call(run: Run, arguments: Arguments) -> object:
        slots, first, tokens, accepted, rings, new = arguments
        return run(rings, slots, first, tokens, accepted, new)

    def observe(run: Run, arguments: Arguments) -> object:
        slots, first, tokens, accepted, rings, new = arguments
        assert isinstance(rings, Rings)
        assert isinstance(tokens, Tensor)
        held = Rings(tokens=rings.tokens.clone(), lengths=rings.lengths.clone())
        run(held, slots, first, tokens, accepted, new)
        assert int((held.tokens != -7).sum()) <= tokens.numel(), "and nothing else is written"
        return held.tokens[slots], held.lengths[slots]

    return Case(
        op="keep_tokens",
        name=f"{count} of which {new} are new in rings of {width}",
        make=make,
        bytes_per_row=lambda size: 16 * count + 32,
        timed_rows=(1, 32, 128),
        call=call,
        observe=observe,
    )


def _observed(run: Run, arguments: Arguments) -> object:
    verdict = run(*arguments)
    assert isinstance(verdict, Verdict)
    return verdict.token_ids, verdict.is_finite, verdict.accepted
