"""What sequences hold: blocks and a slot on the device, or copies of them in host memory.

Every group that a model declares is addressed by one of two ids: the paged groups (global and
index rows of every ratio) share a block id, since they live as long as the prefix; the rings
(windows, compressor tails, draft contexts) share the slot. So there is a pool for each, and
one for each in host memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.cache.blocks import Pool
from engine.sequence import HostCopy
from engine.step import CacheMove

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Sequence as Many

    from engine.cache.blocks import Handle
    from engine.sequence import Sequence
    from engine.step import ScheduledBatch, SchedulerLimits


class Holdings:
    """The pools of one replica. What a step in flight may touch is freed once it has settled."""

    def __init__(self, limits: SchedulerLimits) -> None:
        self.settled = -1  # the newest step that has
        self._limits = limits
        self._block_tokens = limits.block_tokens
        self.blocks = Pool(limits.blocks)
        self.slots = Pool(limits.max_num_seqs)
        self._host_blocks = Pool(limits.host_blocks)
        self._host_slots = Pool(limits.max_num_seqs if limits.host_blocks else 0)

    @property
    def host_blocks_used(self) -> int:
        """Blocks in host memory that hold something."""
        return self._host_blocks.used

    @property
    def is_empty(self) -> bool:
        """Whether no sequence and no step holds anything."""
        return not any(pool.used for pool in self._pools())

    def missing(self, sequence: Sequence, tokens: int) -> int:
        """Blocks that it must take before its caches hold `tokens` rows."""
        return max(0, -(-tokens // self._block_tokens) - len(sequence.blocks))

    def grow(self, sequence: Sequence, tokens: int) -> None:
        """Take the missing blocks, which must be available."""
        missing = self.missing(sequence, tokens)
        if missing:
            sequence.blocks.extend(self.blocks.take(missing))

    def grow_all(self, sequences: Many[Sequence]) -> None:
        """Take a block for each, as often as it is named; as many must be available."""
        if sequences:
            for sequence, block in zip(sequences, self.blocks.take(len(sequences)), strict=True):
                sequence.blocks.append(block)

    def is_in_flight(self, sequence: Sequence) -> bool:
        """Whether a step that has not settled runs rows of it."""
        return sequence.last_step is not None and sequence.last_step > self.settled

    def take_slot(self, sequence: Sequence) -> None:
        """Give it one of the free slots."""
        assert sequence.slot is None, "a sequence has one slot"
        (sequence.slot,) = self.slots.take(1)

    def give_back(self, sequence: Sequence) -> None:
        """Let go of everything, on the device and in host memory."""
        self._retire_device(sequence, sequence.last_step)
        if sequence.host_copy is not None:
            self._retire_host(sequence, sequence.host_copy.step)

    def swap_out(self, sequence: Sequence, step: int) -> CacheMove | None:
        """Have `step` copy its caches to host memory first; None where that has no room."""
        count = self._limits.blocks_for(sequence.computed)
        if self._host_blocks.available < count or not self._host_slots.available:
            return None
        slot = slot_of(sequence)
        host = HostCopy(tuple(self._host_blocks.take(count)), self._host_slots.take(1)[0], step)
        move = CacheMove(sequence, tuple(sequence.blocks[:count]), slot, host)
        self._retire_device(sequence, step)
        sequence.host_copy = host
        return move

    def swap_in(self, sequence: Sequence, step: int) -> CacheMove:
        """Have `step` copy its caches back first; blocks and a slot must be available."""
        host = sequence.host_copy
        assert host is not None, "only what was swapped out comes back"
        self.take_slot(sequence)
        sequence.blocks = self.blocks.take(len(host.blocks))
        self._retire_host(sequence, step)
        return CacheMove(sequence, tuple(sequence.blocks), slot_of(sequence), host)

    def settle(self, step: int) -> None:
        """Free what waited for `step`."""
        self.settled = step
        for pool in self._pools():
            pool.settle(step)

    def check_integrity(
        self, sequences: Iterable[Sequence], in_flight: Iterable[ScheduledBatch]
    ) -> None:
        """Assert that every id has its one owner, and that no step in flight touches a free one."""
        held = list(sequences)
        copies = [s.host_copy for s in held if s.host_copy is not None]
        self.blocks.check_integrity([block for s in held for block in s.blocks])
        self.slots.check_integrity([s.slot for s in held if s.slot is not None])
        self._host_blocks.check_integrity([block for copy in copies for block in copy.blocks])
        self._host_slots.check_integrity([copy.slot for copy in copies])
        for batch in in_flight:
            self._check_touched(batch)

    def _check_touched(self, batch: ScheduledBatch) -> None:
        what = f"of step {batch.number} in flight was freed"
        for touched in (*batch.sequences, *batch.swaps_in, *batch.swaps_out):
            assert all(self.blocks.is_live(block) for block in touched.blocks), f"a block {what}"
            assert self.slots.is_live(touched.slot), f"a slot {what}"
        for move in (*batch.swaps_in, *batch.swaps_out):
            assert all(self._host_blocks.is_live(b) for b in move.host.blocks), f"a copy {what}"
            assert self._host_slots.is_live(move.host.slot), f"a copy's slot {what}"

    def _pools(self) -> tuple[Pool, ...]:
        return self.blocks, self.slots, self._host_blocks, self._host_slots

    def _retire_device(self, sequence: Sequence, step: int | None) -> None:
        self.blocks.retire(sequence.blocks, step)
        sequence.blocks = []
        if sequence.slot is not None:
            self.slots.retire([sequence.slot], step)
            sequence.slot = None

    def _retire_host(self, sequence: Sequence, step: int | None) -> None:
        host, sequence.host_copy = sequence.host_copy, None
        assert host is not None, "there is a copy to retire"
        self._host_blocks.retire(host.blocks, step)
        self._host_slots.retire([host.slot], step)


def slot_of(sequence: Sequence) -> Handle:
    """The slot of a sequence that runs."""
    assert sequence.slot is not None, "a running sequence has a slot"
    return sequence.slot
