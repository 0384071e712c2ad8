"""A step of sequences that decode and of chunks of prompts, from one static row of numbers.

It keeps the graph rule as `engine.decode_step` does, whose part it takes for what decodes. Which
chunk has which rows follows from numbers on the device, so that chunks of all lengths which fit
the rows of a shape share its graph.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from engine.batch import ForwardBatch
from engine.decode_inputs import CHUNK, split
from engine.decode_step import DecodeRows
from engine.sampling import rules_of
from kernels.verification.reference import Drafts

if TYPE_CHECKING:
    from torch import Tensor

    from engine.decode_inputs import StepKey
    from engine.decode_step import DecodeStep


@dataclass(frozen=True, kw_only=True)
class MixedStep:
    """What every such step of an engine works on."""

    decode: DecodeStep

    def run(self, numbers: Tensor, key: StepKey) -> tuple[Tensor, ...]:
        """Run the step that `numbers` tell, laid out by `key`.

        Returns the row that `DecodeStep.run` does, if anything decodes, and one of the chunks:
        the token that each chooses, whether it is finite, and 0. What chunks choose which do not
        reach the newest token of their sequence means nothing.
        """
        step, ints, shape = self.decode, split(numbers, key), key.shape
        rows = DecodeRows.of(ints, key, step.table)
        chunks = _Chunks.of(ints, key)
        guesses = step.draft(rows) if shape.sequences else rows.newest[:, : shape.rows - 1]
        forward = self._forward_batch(step.forward_batch(rows, guesses), rows, chunks)
        logits = step.model.forward(forward, step.caches).logits
        found = (self._choose(chunks, logits[shape.decode_rows :]),)
        if not shape.sequences:
            return found
        return (step.verify(rows, guesses, logits[: shape.decode_rows]), *found)

    def _forward_batch(
        self, decode: ForwardBatch, rows: DecodeRows, chunks: _Chunks
    ) -> ForwardBatch:
        """The rows that decode, and those of the chunks behind them."""
        shape, step = rows.key.shape, self.decode
        width = decode.block_table.shape[1]
        table = step.table.live_blocks(
            chunks.ints["slots"], width, chunks.ints["block_count"], step.spare.block
        )

        def both(ahead: Tensor, behind: Tensor) -> Tensor:
            return torch.cat((ahead, behind))

        assert decode.behind is not None, "a step that decodes has it"
        assert decode.decoder_floor is not None, "a step that decodes has it"
        return replace(
            decode,
            token_ids=both(decode.token_ids, chunks.tokens[:, 0]),
            positions=both(decode.positions, chunks.positions),
            sequence_index=both(decode.sequence_index, chunks.owner + shape.sequences),
            context_length=(*decode.context_length, *((shape.context,) * shape.chunks)),
            behind=both(decode.behind, shape.context - chunks.ints["first"]),
            lookback_ids=both(decode.lookback_ids, chunks.tokens[:, 1:]),
            slots=both(decode.slots, chunks.ints["slots"]),
            block_table=both(decode.block_table, table),
            decoder_start=(0,) * (shape.sequences + shape.chunks),
            decoder_floor=both(decode.decoder_floor, chunks.ints["decoder_start"]),
            logit_rows=both(decode.logit_rows, chunks.last + shape.decode_rows),
            live=both(rows.live_rows, chunks.owner < shape.chunks - 1),
        )

    def _choose(self, chunks: _Chunks, logits: Tensor) -> Tensor:
        """One token for each chunk by logits [chunks, vocab]; the table learns of it."""
        step, ints = self.decode, chunks.ints
        none = torch.zeros_like(ints["first"])
        drafts = Drafts(guesses=none.new_empty(len(none), 0), counts=none)
        rules = rules_of(chunks.key.rule, ints)
        length = ints["first"] + ints["size"]
        verdict = step.ops.verify(logits.unsqueeze(1), drafts, length, rules)
        columns = chunks.key.ngram - 1
        before = chunks.tokens[chunks.last, :columns].flip(1)
        tokens = torch.cat((before, verdict.token_ids), dim=1)
        step.table.write(ints["slots"], length - columns, tokens, verdict.accepted, new=1)
        return verdict.row


@dataclass(frozen=True, slots=True)
class _Chunks:
    """The chunks of a step, padding included."""

    key: StepKey
    ints: dict[str, Tensor]  # [chunks] each
    tokens: Tensor  # [rows, ngram] the token of each row and those before it, newest first
    owner: Tensor  # [rows] its chunk
    positions: Tensor  # [rows]; 0 of padding
    last: Tensor  # [chunks] their last rows; any of those without

    @classmethod
    def of(cls, ints: dict[str, Tensor], key: StepKey) -> _Chunks:
        shape = key.shape
        own = {n.removeprefix(CHUNK): v for n, v in ints.items() if n.startswith(CHUNK)}
        size = own["size"]
        number = torch.arange(shape.chunks, device=size.device)
        owner = torch.repeat_interleave(number, size, output_size=shape.chunk_rows)
        end = size.cumsum(0)
        offset = torch.arange(shape.chunk_rows, device=size.device) - (end - size)[owner]
        positions = (own["first"][owner] + offset) * (owner < shape.chunks - 1)
        tokens = own.pop("tokens").view(shape.chunk_rows, key.ngram)
        return cls(key, own, tokens, owner, positions, (end - 1).clamp(min=0))
