"""Checks of single values: each returns the value or raises ConfigError with the remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from engine.errors import ConfigError
from kernels.near_names import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable
    from enum import StrEnum

Choice = TypeVar("Choice", bound="StrEnum")


def text(name: str, value: object) -> str:
    """A string (or path) that is not blank."""
    stripped = "" if value is None else str(value).strip()
    if not stripped:
        raise ConfigError("is empty.", where=name, remedy="Give a value.")
    return stripped


def choice(name: str, value: object, kind: type[Choice]) -> Choice:
    """A member of an enumeration, given as such or as its string."""
    try:
        return kind(value)
    except ValueError as error:
        raise ConfigError(
            f"{value!r} is not a choice.", where=name, remedy=f"Use one of {', '.join(kind)}."
        ) from error


def whole_number(name: str, value: object, *, least: int, most: int | None = None) -> int:
    """An int, not a bool, of at least `least` and at most `most`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(
            f"{value!r} is not a whole number.", where=name, remedy="Give a whole number."
        )
    if value < least:
        raise ConfigError(f"{value} is too small.", where=name, remedy=f"Use at least {least}.")
    if most is not None and value > most:
        raise ConfigError(f"{value} is too large.", where=name, remedy=f"Use at most {most}.")
    return value


def truth(name: str, value: object) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise ConfigError(f"{value!r} is neither.", where=name, remedy="Use true or false.")
    return value


def share(name: str, value: object) -> float:
    """A number above 0, at most 1."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 1:
        return float(value)
    raise ConfigError(
        f"{value!r} is not a share.", where=name, remedy="Give a number above 0, at most 1."
    )


def unknown_name(name: str, known: Iterable[str], what: str) -> ConfigError:
    """The error for a name that is not among `known`, with one that is near, or all that are."""
    return ConfigError(f"is not {what}.", where=name, remedy=nearest(name, known))
