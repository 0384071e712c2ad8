"""A uniform decode step as plain numbers: one flat row of them, laid out by its key alone.

The tokens of such a step are on the device already, since each of its sequences has chosen its
newest one there; so the host sends where, how many drafts, and by which rule to choose.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from engine.batch import StepShape
from engine.sampling import ChoiceRule, slot_rule
from engine.staging import StagingRing

if TYPE_CHECKING:
    from collections.abc import Sequence as Many

    from numpy.typing import NDArray
    from torch import Tensor

    from engine.cache.blocks import Handle
    from engine.request_table import RequestTable
    from engine.sequence import Sequence
    from engine.step import ScheduledBatch, SequenceColumns

    Ints = NDArray[np.int64]

SHORTEST_CONTEXT = 256
CHUNK = "chunk_"  # before the names of numbers of chunks
_DOUBLED_UP_TO = 8  # sequences; beyond, a bucket lies half way between two powers of two, too


@dataclass(frozen=True, slots=True)
class StepKey:
    """What is static of a step: shapes, and which rule of choice is the widest."""

    shape: StepShape
    rule: ChoiceRule
    news: int  # blocks that the device may have to learn of
    ngram: int = 1  # tokens that a row of a chunk brings: its own and those before it


@dataclass(frozen=True, slots=True)
class DecodeInputs:
    """A step on its way to the device. `numbers` is overwritten by the second step after it."""

    sequences: int  # without padding
    key: StepKey
    numbers: Tensor  # flat int64 in host memory, as `fields_of(key)` lays it out


def fields_of(key: StepKey) -> dict[str, int]:
    """Names and sizes of the numbers of a step, in their order. Floats travel as their bits."""
    shape = key.shape
    per_sequence = ["slots", "live", "drafts", "decoder_start", "block_count", *key.rule.fields]
    news = ("table_rows", "table_columns", "table_blocks")
    decode = dict.fromkeys(per_sequence, shape.sequences) | dict.fromkeys(news, key.news)
    if not shape.chunks:
        return decode
    per_chunk = ["slots", "first", "size", "decoder_start", "block_count", *key.rule.fields]
    chunks = {f"{CHUNK}{name}": shape.chunks for name in per_chunk}
    return decode | chunks | {f"{CHUNK}tokens": shape.chunk_rows * key.ngram}


def split(numbers: Tensor, key: StepKey) -> dict[str, Tensor]:
    """The numbers of a step by name: views of `numbers`."""
    fields = fields_of(key)
    return dict(zip(fields, numbers.split(list(fields.values())), strict=True))


def sequence_bucket(count: int, most: int) -> int:
    """How many sequences a step is padded to: 1, 2, 4, 8, 12, 16, 24, 32, 48, ... and `most`."""
    power = 1 << (count - 1).bit_length()
    between = power * 3 // 4
    bucket = between if power > _DOUBLED_UP_TO and count <= between else power
    return min(bucket, most)


def context_bucket(context: int) -> int:
    """The width that a step's contexts are padded to: a power of two."""
    return max(SHORTEST_CONTEXT, 1 << (context - 1).bit_length())


@dataclass(frozen=True, kw_only=True)
class Spare:
    """The slot and the block that padding is written to."""

    slot: int
    block: int


@dataclass
class SlotFacts:
    """What does not change while a sequence holds its slot, by slot."""

    slots: int
    generation: Ints = field(init=False)
    columns: dict[str, Ints] = field(init=False)

    def __post_init__(self) -> None:
        self.generation = np.full(self.slots, -1, dtype=np.int64)
        names = ("rule", "free_from", "decoder_start", *ChoiceRule.NARROWED.fields)
        self.columns = {name: np.zeros(self.slots, dtype=np.int64) for name in names}

    def gather(self, scheduled: SequenceColumns, slots: Ints, generations: Ints) -> dict[str, Ints]:
        """The facts of the sequences of a step, which hold these slots."""
        for index in np.flatnonzero(self.generation[slots] != generations).tolist():
            self._learn(scheduled.sequence[index], scheduled.slot[index])
        return {name: column[slots] for name, column in self.columns.items()}

    def _learn(self, sequence: Sequence, handle: Handle) -> None:
        """Note what holds for a sequence that has just got its slot."""
        slot, params = handle.id, sequence.request.sampling
        rule, numbers = slot_rule(params, sequence.seed)
        self.generation[slot] = handle.generation
        values = {
            "rule": rule.value,
            "free_from": sequence.prompt_tokens + params.min_tokens,
            "decoder_start": sequence.decoder_start,
            **numbers,
        }
        for name, value in values.items():
            self.columns[name][slot] = value


@dataclass(frozen=True, slots=True)
class _Members:
    """The sequences of decode steps in a row, and what stays as long as they are the same."""

    handles: tuple[Handle, ...]  # their slots
    slots: Ints
    generations: Ints
    rule: ChoiceRule  # the widest
    free_from: Ints  # the length from which nothing is barred
    padded: dict[str, Ints]  # those of the numbers of a step that stay

    @classmethod
    def of(cls, scheduled: SequenceColumns, facts: SlotFacts, most: int, spare: Spare) -> _Members:
        """Gather what `facts` knows of them, once it has met them all."""
        handles = scheduled.slot
        slots, generations = np.array(handles, dtype=np.int64).T
        columns = facts.gather(scheduled, slots, generations)
        rule, size = ChoiceRule(int(columns["rule"].max())), sequence_bucket(len(handles), most)
        numbers = {
            "slots": padded(slots, size, spare.slot),
            "live": padded(np.ones_like(slots), size, 0),
            **{name: padded(columns[name], size, 0) for name in ("decoder_start", *rule.fields)},
        }
        return cls(handles, slots, generations, rule, columns["free_from"], numbers)


class DecodeInputsBuilder:
    """Builds the inputs of uniform decode steps of one engine, in the order of their launch."""

    def __init__(
        self,
        *,
        draft_length: int,
        block_tokens: int,
        most_sequences: int,
        spare: Spare,
        device: str,
    ) -> None:
        self._draft_length = draft_length
        self._block_tokens = block_tokens
        self._most = most_sequences
        self._spare = spare
        self._facts = SlotFacts(most_sequences)
        self._members: _Members | None = None  # of the newest step
        self._ring = StagingRing(device, torch.int64)

    def build(self, batch: ScheduledBatch, table: RequestTable) -> DecodeInputs | None:
        """None where the step is of another kind; then the table has noted nothing of it.

        Uniform: every sequence runs its newest token, which the device has chosen, and drafts,
        and nobody asks for more than tokens. One that comes back from host memory is not known
        to the device, so its first step is of another kind.
        """
        scheduled, count = batch.columns, len(batch.fields)
        if scheduled.known.count(1) < count or not all(scheduled.samples):
            return None
        if self._members is None or scheduled.slot != self._members.handles:
            self._members = _Members.of(scheduled, self._facts, self._most, self._spare)
        columns = (scheduled.first, scheduled.drafts, scheduled.settled, scheduled.block_count)
        numbers = (np.fromiter(column, np.int64, count) for column in columns)
        rows = _Rows(scheduled.holding, self._members, *numbers)
        key = self._key(rows, table)
        if key is None:
            return None
        values = self._values(rows, key, table)
        numbers = self._ring.stage(values[name] for name in fields_of(key))
        return DecodeInputs(count, key, numbers)

    def _key(self, rows: _Rows, table: RequestTable) -> StepKey | None:
        members = rows.members
        known = table.has_newest(members.slots, members.generations)
        is_free = rows.settled >= members.free_from
        if members.rule is ChoiceRule.OTHER or not (is_free.all() and known.all()):
            return None
        per_sequence = 1 + (self._draft_length if rows.drafts.any() else 0)
        count = len(members.padded["slots"])
        news = count * (1 + -(-per_sequence // self._block_tokens))
        if table.count_news(members.slots, rows.blocks) > news:
            return None
        context = context_bucket(int(rows.first.max()) + per_sequence)
        shape = StepShape(sequences=count, rows=per_sequence, context=context)
        return StepKey(shape, members.rule, news)

    def _values(self, rows: _Rows, key: StepKey, table: RequestTable) -> dict[str, Ints]:
        count, spare = key.shape.sequences, self._spare
        news = table.news_of_blocks(rows.holdings, rows.members.slots, rows.blocks)
        fill = {"table_rows": spare.slot, "table_columns": 0, "table_blocks": spare.block}
        return {
            **rows.members.padded,
            "drafts": padded(rows.drafts, count, 0),
            "block_count": padded(rows.blocks, count, 0),
            **{name: padded(news[name], key.news, filler) for name, filler in fill.items()},
        }


@dataclass(frozen=True, slots=True)
class _Rows:
    """A step that only decodes."""

    holdings: tuple[list[Handle], ...]
    members: _Members
    first: Ints  # at most
    drafts: Ints
    settled: Ints
    blocks: Ints  # how many


def padded(values: Many[int] | Ints, size: int, filler: int) -> Ints:
    """Values, and `filler` behind them up to so many."""
    found = np.full(size, filler, dtype=np.int64)
    found[: len(values)] = values
    return found
