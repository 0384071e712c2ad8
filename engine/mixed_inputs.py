"""A step of sequences that decode and of chunks of prompts as plain numbers, laid out by its key.

Few keys are to serve many steps: so sequences, chunks and rows are padded to few counts, four
times apart but for the rows, which cost what they count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from engine.batch import StepShape
from engine.decode_inputs import (
    CHUNK,
    SlotFacts,
    Spare,
    StepKey,
    context_bucket,
    fields_of,
    padded,
)
from engine.sampling import ChoiceRule
from engine.staging import StagingRing

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from engine.request_table import RequestTable
    from engine.step import ScheduledBatch, ScheduledSequence

    Ints = NDArray[np.int64]

MOST_ROWS = 512
"""Rows of chunks that a recorded step has at most: with more, a device works on each operation
for longer than the host takes to launch it."""
_FEWEST_ROWS = 32
_CHUNKS = (1, 4, 16)
_FEWEST_SEQUENCES = 8


@dataclass(frozen=True, slots=True)
class MixedInputs:
    """A step on its way to the device. `numbers` is overwritten by the second step after it."""

    entries: tuple[ScheduledSequence, ...]
    decoding: int  # how many of them, the first ones, decode
    key: StepKey
    numbers: Tensor  # flat int64 in host memory, as `fields_of(key)` lays it out


def chunk_bucket(count: int) -> int:
    """How many chunks `count` of them are padded to, at most 16: the last one is always padding."""
    return next(most for most in _CHUNKS if count <= most) + 1


def row_bucket(rows: int) -> int:
    """How many rows those of all chunks are padded to: a power of two."""
    return max(_FEWEST_ROWS, 1 << (rows - 1).bit_length())


def decode_bucket(count: int, most: int) -> int:
    """How many sequences decode with padding: none, 8, 32, 128, ... and `most`."""
    bucket = _FEWEST_SEQUENCES if count else 0
    while bucket < count:
        bucket *= 4
    return min(bucket, most)


class MixedInputsBuilder:
    """Builds the inputs of such steps of one engine, in the order of their launch."""

    def __init__(
        self,
        *,
        ngram: int,
        draft_length: int,
        block_tokens: int,
        most_sequences: int,
        spare: Spare,
        device: str,
    ) -> None:
        self._ngram = ngram
        self._draft_length = draft_length
        self._block_tokens = block_tokens
        self._most = most_sequences
        self._spare = spare
        self._facts = SlotFacts(most_sequences)
        self._ring = StagingRing(device, torch.int64)

    def build(self, batch: ScheduledBatch, table: RequestTable) -> MixedInputs | None:
        """None where the step is of another kind; then the table has noted nothing of it.

        First those that run their newest token, which the device has chosen, then others whose
        tokens the host knows; and nobody asks for more than tokens.
        """
        rows = _Rows.of(batch, self._facts, table)
        key = self._key(rows, table)
        if key is None:
            return None
        values = self._values(rows, key, table)
        numbers = self._ring.stage(values[name] for name in fields_of(key))
        return MixedInputs(batch.sequences, rows.decoding, key, numbers)

    def _key(self, rows: _Rows, table: RequestTable) -> StepKey | None:
        if not rows.are_plain:
            return None
        per_sequence = 1 + (self._draft_length if rows.drafts.any() else 0)
        shape = StepShape(
            sequences=decode_bucket(rows.decoding, self._most),
            rows=per_sequence,
            context=context_bucket(int((rows.first + rows.known).max()) + per_sequence),
            chunks=chunk_bucket(len(rows.chunks)),
            chunk_rows=row_bucket(rows.chunk_rows),
        )
        news = self._most_news(shape)
        if table.count_missing(rows.slots, rows.generations, rows.blocks) > news:
            return None  # a sequence comes back from host memory
        return StepKey(shape, rows.rule, news, self._ngram)

    def _most_news(self, shape: StepShape) -> int:
        """Blocks that may be new where each sequence has those before its rows."""
        decode = shape.sequences * (1 + -(-shape.rows // self._block_tokens))
        return decode + 2 * shape.chunks + shape.chunk_rows // self._block_tokens

    def _values(self, rows: _Rows, key: StepKey, table: RequestTable) -> dict[str, Ints]:
        shape, spare, names = key.shape, self._spare, ("decoder_start", *key.rule.fields)
        decode, chunks = slice(rows.decoding), slice(rows.decoding, None)
        columns = {
            "slots": rows.slots,
            "block_count": rows.blocks,
            **{name: rows.facts[name] for name in names},
        }
        fillers = dict.fromkeys(columns, 0) | {"slots": spare.slot}
        news = table.news(rows.entries)
        news_fillers = {"table_rows": spare.slot, "table_columns": 0, "table_blocks": spare.block}
        sizes = padded(rows.known[chunks], shape.chunks, 0)
        sizes[-1] = shape.chunk_rows - rows.chunk_rows
        tokens = np.zeros((shape.chunk_rows, self._ngram), dtype=np.int64)
        tokens[: rows.chunk_rows] = np.concatenate([_tokens(e, self._ngram) for e in rows.chunks])
        return {
            **{n: padded(v[decode], shape.sequences, fillers[n]) for n, v in columns.items()},
            "live": padded(np.ones(rows.decoding), shape.sequences, 0),
            "drafts": padded(rows.drafts[decode], shape.sequences, 0),
            **{n: padded(news[n], key.news, filler) for n, filler in news_fillers.items()},
            **{
                f"{CHUNK}{n}": padded(v[chunks], shape.chunks, fillers[n])
                for n, v in columns.items()
            },
            f"{CHUNK}first": padded(rows.first[chunks], shape.chunks, 0),
            f"{CHUNK}size": sizes,
            f"{CHUNK}tokens": tokens,
        }


@dataclass(frozen=True, slots=True)
class _Rows:
    """The sequences of a step, without padding."""

    entries: tuple[ScheduledSequence, ...]
    slots: Ints
    generations: Ints
    first: Ints  # at most
    known: Ints
    drafts: Ints
    blocks: Ints  # how many
    samples: NDArray[np.bool_]
    is_free: NDArray[np.bool_]  # nothing is barred from what it chooses
    facts: dict[str, Ints]
    decoding: int  # how many, the first ones, run their newest token, which is on the device

    @classmethod
    def of(cls, batch: ScheduledBatch, facts: SlotFacts, table: RequestTable) -> _Rows:
        entries, columns = batch.sequences, batch.columns
        slots, generations = np.array(columns.slot, dtype=np.int64).T
        known, samples = np.array(columns.known), np.array(columns.samples)
        decodes = (known == 1) & samples & table.has_newest(slots, generations)
        found = facts.gather(columns, slots, generations)
        return cls(
            entries=entries,
            slots=slots,
            generations=generations,
            first=np.array(columns.first),
            known=known,
            drafts=np.array(columns.drafts),
            blocks=np.array(columns.block_count),
            samples=samples,
            is_free=np.array(columns.settled) >= found["free_from"],
            facts=found,
            decoding=int(np.argmin(decodes)) if not decodes.all() else len(entries),
        )

    @property
    def chunks(self) -> tuple[ScheduledSequence, ...]:
        """Those that do not decode."""
        return self.entries[self.decoding :]

    @property
    def chunk_rows(self) -> int:
        """Rows of the chunks together."""
        return int(self.known[self.decoding :].sum())

    @property
    def rule(self) -> ChoiceRule:
        """The widest of those that choose; what others bring is not looked at."""
        return ChoiceRule(int(self.facts["rule"][self.samples].max(initial=0)))

    @property
    def are_plain(self) -> bool:
        """Whether there are chunks, few and short, and nobody asks for more than tokens."""
        if not 1 <= len(self.chunks) <= _CHUNKS[-1] or self.chunk_rows > MOST_ROWS:
            return False
        if (self.first + self.known <= self.facts["decoder_start"]).all():
            return False  # as it is, it runs no row through the decoder half
        is_known = not any(entry.is_ahead or entry.drafts for entry in self.chunks)
        is_quiet = not any(e.sequence.request.sampling.prompt_logprobs for e in self.chunks)
        is_free = bool((self.is_free | ~self.samples).all())
        return is_known and is_quiet and is_free and self.rule is not ChoiceRule.OTHER


def _tokens(chunk: ScheduledSequence, ngram: int) -> Ints:
    """The token of each row of a chunk and those before it, newest first; -1 before the start."""
    before = chunk.first - (ngram - 1)
    tokens = chunk.sequence.tokens[max(before, 0) : chunk.first + chunk.known]
    line = np.array([-1] * max(-before, 0) + tokens, dtype=np.int64)
    return np.lib.stride_tricks.sliding_window_view(line, ngram)[:, ::-1]
