"""A uniform decode step on the device: draft, forward, choose, verify, all from one static row.

It is a function of a tensor of numbers, of the request table and of the caches, and keeps the
graph rule of `engine.models.protocol`: so it can be recorded once and replayed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from engine.batch import DraftBatch, ForwardBatch
from engine.decode_inputs import split
from engine.sampling import rules_of
from kernels.verification.reference import Drafts

if TYPE_CHECKING:
    from torch import Tensor

    from engine.cache.storage import CacheStorage
    from engine.decode_inputs import Spare, StepKey
    from engine.models.protocol import Model
    from engine.request_table import RequestTable
    from kernels.ops import Ops


@dataclass(frozen=True, kw_only=True)
class DecodeStep:
    """What every uniform decode step of an engine works on."""

    model: Model
    caches: CacheStorage
    table: RequestTable
    spare: Spare
    ops: Ops

    def run(self, numbers: Tensor, key: StepKey) -> tuple[Tensor, ...]:
        """Run the step that `numbers` tell, laid out by `key`.

        Returns one row: the chosen tokens [S * rows], whether each is finite, and how many
        drafts of each sequence stand [S].
        """
        rows = DecodeRows.of(split(numbers, key), key, self.table)
        guesses = self.draft(rows)
        logits = self.model.forward(self.forward_batch(rows, guesses), self.caches).logits
        return (self.verify(rows, guesses, logits),)

    def draft(self, rows: DecodeRows) -> Tensor:
        """Guesses [S, rows - 1]."""
        length = rows.key.shape.rows - 1
        if not length:
            return rows.newest[:, :0]
        batch = DraftBatch(
            anchor_ids=rows.newest[:, 0],
            anchor_positions=rows.first,
            slots=rows.ints["slots"],
            decoder_start=rows.ints["decoder_start"],
            draft_length=length,
            live=rows.live,
        )
        return self.model.draft(batch, self.caches).token_ids

    def verify(self, rows: DecodeRows, guesses: Tensor, logits: Tensor) -> Tensor:
        """Choose by logits [S * rows, vocab]; the table learns of it. Returns what `run` does."""
        key, ints = rows.key, rows.ints
        drafts = Drafts(guesses=guesses, counts=ints["drafts"])
        logits = logits.unflatten(0, (key.shape.sequences, key.shape.rows))
        next_first = rows.first + 1
        verdict = self.ops.verify(logits, drafts, next_first, rules_of(key.rule, ints))
        self.table.write(
            ints["slots"], next_first, verdict.token_ids, verdict.accepted, new=verdict.rows
        )
        return verdict.row

    def forward_batch(self, rows: DecodeRows, guesses: Tensor) -> ForwardBatch:
        """What the model runs of the sequences that decode."""
        shape, ints = rows.key.shape, rows.ints
        count, each = shape.sequences, shape.rows
        line = torch.cat((rows.newest.flip(1), guesses), dim=1)
        seen = line.unfold(1, rows.newest.shape[1], 1).flip(2)  # [S, rows, ngram] newest first
        number = torch.arange(each, device=line.device)
        blocks = -(-shape.context // self.caches.block_tokens)
        sequence_index = torch.arange(count, device=line.device).unsqueeze(1)
        return ForwardBatch(
            token_ids=seen[..., 0].flatten(),
            positions=(rows.first.unsqueeze(1) + number).flatten(),
            sequence_index=sequence_index.expand(-1, each).flatten().contiguous(),
            query_start=shape.starts,
            context_length=(shape.context - each,) * count,
            behind=shape.context - each - rows.first,
            lookback_ids=seen[..., 1:].flatten(0, 1),
            slots=ints["slots"],
            block_table=self.table.live_blocks(
                ints["slots"], blocks, ints["block_count"], self.spare.block
            ),
            decoder_start=(0,) * count,
            decoder_floor=ints["decoder_start"],
            decoder_rows=None,
            logit_rows=torch.arange(count * each, device=line.device),
            shape=shape,
            live=rows.live_rows,
        )


@dataclass(frozen=True, slots=True)
class DecodeRows:
    """The sequences of a step that decode, padding included."""

    key: StepKey
    ints: dict[str, Tensor]
    live: Tensor  # [S]
    first: Tensor  # [S] position of the newest token; 0 of padding
    newest: Tensor  # [S, ngram] the newest token and those before it; 0 of padding

    @classmethod
    def of(cls, ints: dict[str, Tensor], key: StepKey, table: RequestTable) -> DecodeRows:
        """Have the table take in what the step brings, and look up what it knows of them."""
        table.take_in(ints)
        live = ints["live"].bool()
        first, newest = table.newest(ints["slots"])
        return cls(key, ints, live, first * live, newest * live.unsqueeze(1))

    @property
    def is_guess(self) -> Tensor:
        """Which of the rows after the first are drafts: [S, rows - 1]."""
        number = torch.arange(self.key.shape.rows - 1, device=self.live.device)
        return number < self.ints["drafts"].unsqueeze(1)

    @property
    def live_rows(self) -> Tensor:
        """[S * rows]."""
        return torch.cat((self.live.unsqueeze(1), self.is_guess), dim=1).flatten()
