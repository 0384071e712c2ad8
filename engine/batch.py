"""The tensors of one step: what the runner hands to a model. Ownership: the step's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class StepShape:
    """What is static of a step that may be recorded: its tensors have shapes of these alone.

    First come sequences that decode, then chunks of prompts. How the chunks share their rows, the
    device alone knows. The last chunk is padding, and owns the rows that no other does.
    """

    sequences: int  # that decode, padding included
    rows: int  # of each of them: its newest token, then drafts
    context: int  # no row of the step lies at this position or beyond
    chunks: int = 0  # padding included
    chunk_rows: int = 0  # of all of them together

    @property
    def decode_rows(self) -> int:
        """Rows of the sequences that decode: those of the chunks come after."""
        return self.sequences * self.rows

    @property
    def starts(self) -> tuple[int, ...]:
        """First row of every sequence and chunk, and the end; the first chunk takes all rows."""
        end = self.decode_rows + self.chunk_rows
        return (*range(0, self.decode_rows + 1, self.rows), *((end,) * self.chunks))


@dataclass(frozen=True, kw_only=True)
class ForwardBatch:
    """T tokens of R sequences, flattened in sequence order; positions rise within a sequence.

    Every tensor is on the device of the model. int64 unless it says otherwise.
    """

    token_ids: Tensor  # [T]
    positions: Tensor  # [T] absolute position of each token in its sequence
    sequence_index: Tensor  # [T] row of the sequence in this batch, 0..R-1, ascending
    query_start: tuple[int, ...]  # R+1 offsets into T: sequence r owns rows [r, r+1)
    context_length: tuple[int, ...]
    """R: tokens of the sequence cached before this step, at most: see `behind`."""
    behind: Tensor | None = None
    """[R] by how much the host overestimates `context_length`, since it planned before it knew
    which drafts stand; None = not at all. `positions` are right as they are."""
    lookback_ids: Tensor  # [T, ngram - 1] token at position p-1, p-2, ...; -1 before the start
    slots: Tensor  # [R] state slot of each sequence (rings and tails); never shared
    block_table: Tensor  # [R, max blocks] physical block of each logical block; 0 pads
    decoder_start: tuple[int, ...]
    """R: first position that the decoder half sees (its window floor). 0 = no truncation."""
    decoder_floor: Tensor | None = None
    """[R] the same on the device; None = nobody put it there."""
    decoder_rows: Tensor | None
    """Rows of T that run the decoder half, ascending; None = all (mode `off` or `mask`)."""
    logit_rows: Tensor  # [L] rows of T whose logits are wanted; each must be a decoder row
    shape: StepShape | None = None
    """Not None: a step that decodes, or runs chunks besides if the shape has any, by the graph
    rule of `engine.models.protocol`.

    Then `query_start` is that of the shape, `context_length` what it says at most,
    `decoder_start` is not to be read, `decoder_floor` and `behind` are given, `decoder_rows` is
    None, and `logit_rows` are all rows that decode and the last row of every chunk.
    """
    live: Tensor | None = None
    """[T] bool; rows that are False are padding, see the graph rule. None = no padding."""


@dataclass(frozen=True, kw_only=True)
class Capture:
    """Intermediate values for `verify`; filled in by a forward that is given one.

    Keys: `stream_mean.N`, `premix.N` (after layer N, rows as that layer ran them) and `taps`.
    """

    values: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ForwardOutput:
    """Logits of the rows asked for."""

    logits: Tensor  # [L, vocab] float32 (float64 for a float64 model)


@dataclass(frozen=True, kw_only=True)
class DraftBatch:
    """R sequences, each about to guess what follows its newest token.

    Contexts 0..P of each sequence were written by `forward`; the anchor is the token sampled
    at position P+1, not yet run through the target.
    """

    anchor_ids: Tensor  # [R]
    anchor_positions: Tensor  # [R] = P+1
    slots: Tensor  # [R]
    decoder_start: Tensor  # [R] context rows before it do not exist
    draft_length: int  # 1..block size: how many guesses are wanted
    live: Tensor | None = None  # [R] bool; False is padding, whose guesses mean nothing


@dataclass(frozen=True, kw_only=True)
class DraftOutput:
    """Guesses for positions P+2.., with raw confidence logits (sigmoid = P(accept | prefix))."""

    token_ids: Tensor  # [R, draft_length] argmax, lowest id on ties
    logits: Tensor  # [R, draft_length, vocab]
    confidence: Tensor  # [R, draft_length]
