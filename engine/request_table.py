"""What the device knows of every sequence: so that tokens need not travel to the host and back.

A sequence has one row, that of its slot, as long as it holds the slot. A row holds its length,
its newest tokens and its block table. Steps write lengths and tokens in their own order; the
host knows who wrote last, and a row is read only by the sequence that wrote it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from kernels.ops import REFERENCE
from kernels.verification.reference import Rings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from engine.cache.blocks import Handle
    from engine.step import ScheduledSequence
    from kernels.ops import Ops

    Ints = NDArray[np.int64]


class RequestTable:
    """`rows` slots on one device. `news` is called in the order of launches, the rest on it."""

    def __init__(
        self,
        *,
        rows: int,
        ngram: int,
        draft_length: int,
        most_blocks: int,
        device: str,
        ops: Ops = REFERENCE,
    ) -> None:
        self._columns = ngram - 1
        self._width = draft_length + ngram + 1  # a step's tokens, and what they look back to
        self._rings = Rings(
            tokens=torch.zeros(rows, self._width, dtype=torch.int64, device=device),
            lengths=torch.zeros(rows, dtype=torch.int64, device=device),
        )
        self._ops = ops
        self._blocks = torch.zeros(rows, most_blocks, dtype=torch.int64, device=device)
        self._generations = np.full(rows, -1)  # who holds the row
        self._known_blocks = np.zeros(rows, dtype=np.int64)
        self._has_tokens = np.zeros(rows, dtype=bool)

    def news(self, entries: Sequence[ScheduledSequence]) -> dict[str, Ints | list[int]]:
        """Blocks that the device lacks, as `table_rows`, `table_columns` and `table_blocks`."""
        slots = np.array([entry.slot.id for entry in entries])
        generations = np.array([entry.slot.generation for entry in entries])
        is_new = self._generations[slots] != generations
        self._generations[slots] = generations
        self._known_blocks[slots[is_new]] = 0
        self._has_tokens[slots[is_new]] = False
        is_ahead = np.array([entry.is_ahead for entry in entries])
        assert self._has_tokens[slots[is_ahead]].all(), "a row is read before it is written"
        self._has_tokens[slots] |= np.array([entry.samples for entry in entries])
        counts = np.array([entry.block_count for entry in entries])
        return self.news_of_blocks([entry.holding for entry in entries], slots, counts)

    def news_of_blocks(
        self, holdings: Sequence[list[Handle]], slots: Ints, counts: Ints
    ) -> dict[str, Ints | list[int]]:
        """The same of those that have run here before, in these slots, with so many blocks."""
        lacking = np.flatnonzero(self._known_blocks[slots] < counts)
        if not len(lacking):
            return {"table_rows": [], "table_columns": [], "table_blocks": []}
        slots, counts = slots[lacking], counts[lacking]
        known = self._known_blocks[slots]
        missing = counts - known
        start = np.cumsum(missing) - missing  # of each one's first among all that are missing
        held_by = [holdings[index] for index in lacking.tolist()]
        new = zip(held_by, known.tolist(), counts.tolist(), strict=True)
        self._known_blocks[slots] = counts
        return {
            "table_rows": np.repeat(slots, missing),
            "table_columns": np.arange(missing.sum()) + np.repeat(known - start, missing),
            "table_blocks": [block.id for held, a, b in new for block in held[a:b]],
        }

    def has_newest(self, slots: Ints, generations: Ints) -> NDArray[np.bool_]:
        """Which of the holders of slots have their newest token here, once all steps are done."""
        return (self._generations[slots] == generations) & self._has_tokens[slots]

    def count_news(self, slots: Ints, blocks: Ints) -> int:
        """How many of their `blocks` the device lacks, of holders that it knows."""
        return int((blocks - self._known_blocks[slots]).sum())

    def count_missing(self, slots: Ints, generations: Ints, blocks: Ints) -> int:
        """The same of holders of whom some are new to it."""
        is_known = self._generations[slots] == generations
        return int((blocks - self._known_blocks[slots] * is_known).sum())

    def take_in(self, ints: dict[str, Tensor]) -> None:
        """Add the blocks that `news` found."""
        if len(ints["table_rows"]):
            self._blocks[ints["table_rows"], ints["table_columns"]] = ints["table_blocks"]

    def blocks(self, slots: Tensor, width: int) -> Tensor:
        """Block table [R, width] of the slots; what lies behind a sequence's blocks is no one's."""
        return self._blocks[slots, :width]

    def live_blocks(self, slots: Tensor, width: int, counts: Tensor, spare: int) -> Tensor:
        """The same, where a block of no one, `spare`, stands behind the counts [R] of each."""
        column = torch.arange(width, device=slots.device)
        return torch.where(column < counts.unsqueeze(1), self.blocks(slots, width), spare)

    def newest(self, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Positions of the newest tokens [A], and they with those before them [A, ngram].

        Newest first; -1 before the start.
        """
        positions = self._rings.lengths[slots] - 1
        back = positions[:, None] - torch.arange(self._columns + 1, device=slots.device)
        tokens = self._rings.tokens[slots[:, None], back % self._width]
        return positions, tokens.masked_fill(back < 0, -1)

    def write(
        self, slots: Tensor, first: Tensor, tokens: Tensor, accepted: Tensor, *, new: int
    ) -> None:
        """Add tokens [S, n] from the positions `first` [S] on; a step chose the last `new` of them.

        accepted [S] + 1 of the new ones stand, the others are overwritten before anyone reads
        them. Of what a sequence looks back to, the row must hold what is not among the tokens.
        """
        self._ops.keep_tokens(self._rings, slots, first, tokens, accepted, new)
