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
    """`total` ids, 0 to total - 1, each free or held once. Freed ids are reused first."""

    def __init__(self, total: int) -> None:
        self._free = [PhysicalId(i) for i in reversed(range(total))]
        self._is_held = [False] * total
        self._generations = [0] * total

    @property
    def total(self) -> int:
        """Ids there are."""
        return len(self._is_held)

    @property
    def available(self) -> int:
        """Ids free to be taken."""
        return len(self._free)

    @property
    def used(self) -> int:
        """Ids held by someone."""
        return self.total - self.available

    def take(self, count: int) -> list[Handle]:
        """Take `count` ids. At least `count` must be available."""
        assert 0 <= count <= self.available, f"{count} wanted, {self.available} available"
        return [self._take_one() for _ in range(count)]

    def _take_one(self) -> Handle:
        taken = self._free.pop()
        self._is_held[taken] = True
        return Handle(taken, self._generations[taken])

    def is_live(self, handle: Handle) -> bool:
        """Whether the handle still stands for what it was taken for."""
        return self._is_held[handle.id] and self._generations[handle.id] == handle.generation

    def release(self, handle: Handle) -> None:
        """Free an id and end its generation."""
        assert self.is_live(handle), f"{handle} is stale or was freed twice"
        self._is_held[handle.id] = False
        self._generations[handle.id] += 1
        self._free.append(handle.id)

    def check_integrity(self, held: list[Handle]) -> None:
        """Assert that `held` is all there is, each once, and that nothing leaks."""
        for handle in held:
            assert self.is_live(handle), f"{handle} is held but not live"
        ids = {handle.id for handle in held}
        assert len(ids) == len(held), "an id has two holders"
        assert ids == {i for i, is_held in enumerate(self._is_held) if is_held}, "an id leaked"
        assert sorted(self._free) == [i for i in range(self.total) if i not in ids]
