"""Reading JSON of a server without trusting its shape: wrong types read as absent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard, cast

Json = Mapping[str, object]


def is_mapping(value: object) -> TypeGuard[Json]:
    """True for a JSON object."""
    return isinstance(value, Mapping)


def mapping(value: object) -> Json:
    """The object, or an empty one."""
    empty: Json = {}
    return value if is_mapping(value) else empty


def items(value: object) -> list[object]:
    """The list, or an empty one."""
    return cast("list[object]", value) if isinstance(value, list) else []


def text(value: object) -> str:
    """The text, or an empty one. Half a character, which JSON can hold, becomes U+FFFD."""
    if not isinstance(value, str):
        return ""
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def count(value: object) -> int | None:
    """A number of tokens, or the id of one; None for what can be neither."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value < 2**31 else None


def dig(value: object, *path: str) -> object:
    """What lies under the names; None where the way ends."""
    for name in path:
        value = mapping(value).get(name)
    return value
