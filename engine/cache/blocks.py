"""Which cache blocks and state slots are free, who holds them, and proof that nobody lies.

A pool hands out handles: an id with the generation in which it was taken. The generation
grows whenever an id becomes free, so a stale handle cannot free what someone else now holds.
Holders are counted. What a step in flight may still touch is retired, not released: it stays
held until that step has settled. Assertions here guard against our own bugs; running out is
the caller's question to ask first.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, NewType

from engine.tuples import new_tuple

if TYPE_CHECKING:
    from collections.abc import Iterable

PhysicalId = NewType("PhysicalId", int)


class Handle(NamedTuple):
    """One taken block or slot."""

    id: PhysicalId
    generation: int


class Pool:
    """`total` ids, 0 to total - 1, each free or held. Freed ids are reused first."""

    def __init__(self, total: int) -> None:
        self._free = [PhysicalId(i) for i in reversed(range(total))]
        self._holders = [0] * total
        self._generations = [0] * total
        self._settled = -1
        self._retired: dict[int, list[Handle]] = {}  # by the step that they wait for

    @property
    def total(self) -> int:
        """Ids there are."""
        return len(self._holders)

    @property
    def available(self) -> int:
        """Ids free to be taken."""
        return len(self._free)

    @property
    def used(self) -> int:
        """Ids held by someone, or by a step in flight."""
        return self.total - self.available

    @property
    def retiring(self) -> int:
        """Holders that wait for a step in flight."""
        return sum(len(handles) for handles in self._retired.values())

    def take(self, count: int) -> list[Handle]:
        """Take `count` ids. At least `count` must be available."""
        assert 0 <= count <= self.available, f"{count} wanted, {self.available} available"
        free, holders, generations = self._free, self._holders, self._generations
        handles: list[Handle] = []
        for _ in range(count):
            taken = free.pop()
            holders[taken] = 1
            handles.append(new_tuple(Handle, (taken, generations[taken])))
        return handles

    def share(self, handle: Handle) -> Handle:
        """Give an id one holder more; each of them releases or retires it once."""
        assert self.is_live(handle), f"{handle} is stale"
        self._holders[handle.id] += 1
        return handle

    def is_live(self, handle: Handle) -> bool:
        """Whether the handle still stands for what it was taken for."""
        is_held = self._holders[handle.id] > 0
        return is_held and self._generations[handle.id] == handle.generation

    def release(self, handle: Handle) -> None:
        """Let go of an id; the last holder frees it and ends its generation."""
        assert self.is_live(handle), f"{handle} is stale or was freed twice"
        self._holders[handle.id] -= 1
        if not self._holders[handle.id]:
            self._generations[handle.id] += 1
            self._free.append(handle.id)

    def retire(self, handles: Iterable[Handle], step: int | None) -> None:
        """Release once `step`, the last that touches them, has settled; at once if it has."""
        if step is None or step <= self._settled:
            for handle in handles:
                self.release(handle)
        else:
            self._retired.setdefault(step, []).extend(handles)

    def settle(self, step: int) -> None:
        """Release what waited for `step` or one before it."""
        self._settled = step
        for done in sorted(number for number in self._retired if number <= step):
            for handle in self._retired.pop(done):
                self.release(handle)

    def check_integrity(self, held: list[Handle]) -> None:
        """Assert that `held` and what is retired is all there is, and that nothing leaks.

        An id that is shared comes once for each of its holders.
        """
        counted = Counter([*held, *chain.from_iterable(self._retired.values())])
        for handle, count in counted.items():
            assert self.is_live(handle), f"{handle} is held but not live"
            expected = self._holders[handle.id]
            assert count <= expected, f"{handle} has two holders that do not know of each other"
            assert count == expected, f"a holder of {handle} is lost"
        ids = {handle.id for handle in counted}
        assert ids == {i for i, count in enumerate(self._holders) if count}, "an id leaked"
        assert sorted(self._free) == [i for i in range(self.total) if i not in ids]
