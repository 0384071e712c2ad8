"""The device's half of building a step: what the host could not know is filled in there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from engine.batch import DraftBatch, ForwardBatch
from kernels.verification.reference import accept

if TYPE_CHECKING:
    from torch import Tensor

    from engine.batch import DraftOutput
    from engine.request_table import RequestTable
    from engine.step_inputs import StepInputs
    from kernels.sampling.reference import Choice


@dataclass(slots=True)
class StepTensors:
    """One step on the device: tokens of its sequences, drafts once they are guessed."""

    inputs: StepInputs
    table: RequestTable
    columns: int  # ngram - 1
    tokens: Tensor
    first: Tensor  # [R] true position of the first row of each sequence
    behind: Tensor | None  # [R] by how much the host took it too large

    @classmethod
    def of(cls, inputs: StepInputs, table: RequestTable, *, ngram: int) -> StepTensors:
        """Take in what the host sent, and the tokens that steps before this one have chosen."""
        ints = inputs.ints
        table.take_in(ints)
        tokens, first, behind = ints["tokens"], ints["first"], None
        ahead = ints["ahead"]
        if len(ahead):
            newest, found = table.newest(ints["slots"][ahead])
            back = torch.arange(ngram, device=ahead.device)
            tokens[ints["newest_at"][ahead][:, None] - back] = found
            first = first.index_copy(0, ahead, newest)
            behind = ints["first"] - first
        return cls(inputs, table, ngram - 1, tokens, first, behind)

    def draft_batch(self) -> DraftBatch:
        """Tensors for guessing what follows the newest token of each sequence that drafts."""
        ints = self.inputs.ints
        drafting = ints["drafting"]
        return DraftBatch(
            anchor_ids=self.tokens[ints["newest_at"][drafting]],
            anchor_positions=(self.first + ints["known"])[drafting] - 1,
            slots=ints["slots"][drafting],
            decoder_start=ints["decoder_start"][drafting],
            draft_length=self.inputs.longest_draft,
        )

    def take_guesses(self, drafts: DraftOutput) -> None:
        """Put the guesses where the rows expect them."""
        ints = self.inputs.ints
        self.tokens[ints["guess_at"]] = drafts.token_ids.flatten()[ints["guess_from"]]

    def positions(self) -> Tensor:
        """Absolute position of each row [T]."""
        ints = self.inputs.ints
        return self.first[ints["owner"]] + ints["offset"]

    def forward_batch(self) -> ForwardBatch:
        """What the model runs."""
        inputs, ints = self.inputs, self.inputs.ints
        at = ints["token_at"]
        back = torch.arange(1, self.columns + 1, device=at.device)
        return ForwardBatch(
            token_ids=self.tokens[at],
            positions=self.positions(),
            sequence_index=ints["owner"],
            query_start=inputs.query_start,
            context_length=tuple(entry.first for entry in inputs.entries),
            behind=self.behind,
            lookback_ids=self.tokens[at[:, None] - back],
            slots=ints["slots"],
            block_table=self.table.blocks(ints["slots"], inputs.widest_table),
            decoder_start=tuple(entry.sequence.decoder_start for entry in inputs.entries),
            decoder_floor=ints["decoder_start"],
            decoder_rows=None if inputs.decoder_rows == len(at) else ints["decoder_rows"],
            logit_rows=ints["logit_rows"],
        )

    def verify(self, choice: Choice) -> Tensor:
        """How many drafts of each sequence that samples stand [S]; the table learns of it."""
        ints = self.inputs.ints
        samplers = ints["samplers"]
        count, drafts = len(samplers), self.inputs.longest_draft
        chosen = choice.token_ids[ints["choice_of"].view(count, drafts + 1)]
        lengths = (self.first + ints["known"])[samplers]
        slots = ints["slots"][samplers]
        accepted = self._accepted(chosen) if drafts else torch.zeros_like(slots)
        tokens = torch.cat((self._before(), chosen), dim=1) if self.columns else chosen
        self.table.write(slots, lengths - self.columns, tokens, accepted, new=drafts + 1)
        return accepted

    def _accepted(self, chosen: Tensor) -> Tensor:
        ints, shape = self.inputs.ints, (len(chosen), self.inputs.longest_draft)
        guesses = self.tokens[ints["guess_of"].view(shape)]
        return accept(guesses, chosen, ints["is_guess"].view(shape).bool())

    def _before(self) -> Tensor:
        """What stands before the newest token of each sequence that samples: [S, columns]."""
        ints = self.inputs.ints
        samplers = ints["samplers"]
        back = torch.arange(self.columns - 1, -1, -1, device=samplers.device)
        return self.tokens[ints["newest_at"][samplers][:, None] - back]
