"""The tensors of one step: what the runner hands to a model. Ownership: the step's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class DecodeShape:
    """What is static of a uniform decode step: every one of its tensors has a shape of these."""

    sequences: int  # padding included
    rows: int  # of each sequence: its newest token, then drafts
    context: int  # no row of the step lies at this position or beyond


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
    shape: DecodeShape | None = None
    """Not None: a uniform decode step, run by the graph rule of `engine.models.protocol`.

    Then `query_start` and `context_length` are what the shape says at most, `decoder_start` is
    not to be read, `decoder_floor` and `behind` are given, `decoder_rows` is None, and
    `logit_rows` are all rows.
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
