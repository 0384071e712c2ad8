"""Which cache blocks and state slots are free, who holds them, and proof that nobody lies.

A pool hands out handles: an id with the generation in which it was taken. The generation
grows whenever an id becomes free, so a stale handle cannot free what someone else now holds.
Assertions here guard against our own bugs; running out is the caller's question to ask first.
"""

from __future__ import annotations

from typing import NamedTuple, NewType

PhysicalId = NewType("PhysicalId", int)


class Handle(NamedTuple):
    """One taken block or slot."""

    id: PhysicalId
    generation: int


class Pool:
    """`total` ids, 0 to total - 1, with reference counts. Freed ids are reused first."""

    def __init__(self, total: int) -> None:
        self._free = [PhysicalId(i) for i in reversed(range(total))]
        self._references = [0] * total
        self._generations = [0] * total

    @property
    def total(self) -> int:
        """Ids there are."""
        return len(self._references)

    @property
    def available(self) -> int:
        """Ids free to be taken."""
        return len(self._free)

    @property
    def used(self) -> int:
        """Ids held by someone."""
        return self.total - self.available

    def take(self, count: int) -> list[Handle]:
        """Take `count` ids, each with one reference. At least `count` must be available."""
        assert 0 <= count <= self.available, f"{count} wanted, {self.available} available"
        return [self._take_one() for _ in range(count)]

    def _take_one(self) -> Handle:
        taken = self._free.pop()
        self._references[taken] = 1
        return Handle(taken, self._generations[taken])

    def is_live(self, handle: Handle) -> bool:
        """Whether the handle still stands for what it was taken for."""
        return self._references[handle.id] > 0 and self._generations[handle.id] == handle.generation

    def retain(self, handle: Handle) -> None:
        """Add a reference to a live handle."""
        assert self.is_live(handle), f"{handle} is stale"
        self._references[handle.id] += 1

    def release(self, handle: Handle) -> None:
        """Drop a reference; the last one frees the id and ends its generation."""
        assert self.is_live(handle), f"{handle} is stale or was freed twice"
        self._references[handle.id] -= 1
        if not self._references[handle.id]:
            self._generations[handle.id] += 1
            self._free.append(handle.id)

    def check_integrity(self, held: list[Handle]) -> None:
        """Assert that `held`, one entry a reference, is all there is and that nothing leaks."""
        counts = [0] * self.total
        for handle in held:
            assert self.is_live(handle), f"{handle} is held but not live"
            counts[handle.id] += 1
        assert counts == self._references, "references do not match the holders"
        assert sorted(self._free) == [i for i, count in enumerate(counts) if not count]
