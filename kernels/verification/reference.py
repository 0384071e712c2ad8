"""Which drafts stand, by agreement: the definition.

A draft stands where the token that is chosen at its place equals it, and so do all before it. A
choice is a function of the logits there, of a rule, a seed and the position
(`kernels.sampling.reference`), so that the text is the one that no draft would have given:
lossless for greedy and for seeded sampling, whatever the draft length.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.sampling.reference import (
    Choice,
    Narrowing,
    SamplingRules,
    choose_highest,
    choose_tokens,
)


@dataclass(frozen=True, kw_only=True)
class Drafts:
    """What was guessed of S sequences; `counts` [S] of the guesses [S, D] of each are drafts."""

    guesses: Tensor  # int64
    counts: Tensor  # int64, 0 to D


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What S sequences of R rows each have chosen, as one row of S * (2 * R + 1) int64, which
    travels to the host in one piece.
    """

    row: Tensor
    sequences: int
    rows: int

    @property
    def token_ids(self) -> Tensor:
        """Chosen tokens [S, R]; 0 where the logits are not finite. Those behind `accepted` + 1 of
        them mean nothing.
        """
        return self._of_rows(0)

    @property
    def is_finite(self) -> Tensor:
        """1 where the highest logit of a row is finite and none is NaN, else 0: [S, R]."""
        return self._of_rows(1)

    @property
    def accepted(self) -> Tensor:
        """How many leading drafts stand [S]."""
        return self.row[2 * self.sequences * self.rows :]

    def _of_rows(self, part: int) -> Tensor:
        size = self.sequences * self.rows
        return self.row[part * size : (part + 1) * size].view(self.sequences, self.rows)


@dataclass(frozen=True, kw_only=True)
class Rings:
    """The newest tokens of sequences: position p lies at p modulo the width."""

    tokens: Tensor  # [slots, width] int64
    lengths: Tensor  # [slots] int64


def verify(logits: Tensor, drafts: Drafts, first: Tensor, rules: SamplingRules | None) -> Verdict:
    """Choose a token for each row of logits [S, D + 1, vocab] and say which drafts stand.

    first [S] is the position of the token that the first row of a sequence chooses. `rules` are
    those of the sequences; without them the highest logit is chosen. No draft stands from a row
    on that is not finite.
    """
    flat = logits.flatten(0, 1)
    if rules is None:
        return judged(choose_highest(flat), drafts)
    return judged(choose_tokens(flat, *each_row(first, rules, logits.shape[1])), drafts)


def judged(choice: Choice, drafts: Drafts) -> Verdict:
    """The verdict on drafts of S sequences of D + 1 rows each, by the choice of all rows."""
    sequences, rows = len(drafts.counts), drafts.guesses.shape[1] + 1
    is_finite = choice.is_finite.view(sequences, rows)
    chosen = choice.token_ids.view(sequences, rows) * is_finite
    number = torch.arange(rows - 1, device=chosen.device)
    is_draft = (number < drafts.counts.unsqueeze(1)) & is_finite[:, :-1]
    accepted = accept(drafts.guesses, chosen, is_draft)
    row = torch.cat((chosen.flatten(), is_finite.flatten().long(), accepted))
    return Verdict(row=row, sequences=sequences, rows=rows)


def accept(guesses: Tensor, chosen: Tensor, is_draft: Tensor) -> Tensor:
    """How many leading drafts of each sequence stand: [S].

    chosen[:, i] is the target's token at the place of guesses [S, D]; it has one column more, the
    bonus token, which follows when every draft stands. is_draft [S, D].
    """
    stands = (guesses == chosen[:, :-1]) & is_draft
    return stands.long().cumprod(dim=1).sum(dim=1)


def keep_tokens(
    rings: Rings, slots: Tensor, first: Tensor, tokens: Tensor, accepted: Tensor, new: int
) -> None:
    """Write tokens [S, n], n at most the width, of the positions from `first` [S] on, which may be
    below 0, to the rings of slots [S]. The last `new` of them were chosen now; `accepted` [S] + 1
    of those stand, and set the lengths.
    """
    width = rings.tokens.shape[1]
    positions = first[:, None] + torch.arange(tokens.shape[1], device=slots.device)
    rings.tokens[slots[:, None], positions % width] = tokens
    rings.lengths[slots] = first + (tokens.shape[1] - new + 1) + accepted


def each_row(first: Tensor, rules: SamplingRules, rows: int) -> tuple[Tensor, SamplingRules]:
    """Positions and rules of sequences for each of their `rows`: of all, in order."""

    def each(values: Tensor) -> Tensor:
        return values.unsqueeze(1).expand(-1, rows).flatten()

    narrowing = rules.narrowing
    if narrowing is not None:
        narrowing = Narrowing(
            top_k=each(narrowing.top_k), top_p=each(narrowing.top_p), min_p=each(narrowing.min_p)
        )
    of_rows = SamplingRules(
        temperatures=each(rules.temperatures), seeds=each(rules.seeds), narrowing=narrowing
    )
    return (first.unsqueeze(1) + torch.arange(rows, device=first.device)).flatten(), of_rows
