"""Named tuples by the hundred, as every step makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Iterable

_T = TypeVar("_T", bound=tuple[object, ...])


class _NewTuple(Protocol):
    def __call__(self, kind: type[_T], fields: Iterable[object], /) -> _T: ...


new_tuple = cast("_NewTuple", tuple.__new__)  # type: ignore[reportUnknownMemberType]
"""`new_tuple(NamedTuple, (every, field))` makes one without the Python of its own constructor.

That takes a third of the time, and a step makes hundreds.
"""
