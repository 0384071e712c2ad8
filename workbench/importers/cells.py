"""Cells of foreign files as values of the type that is meant, or None: nothing here raises.

Other tools write numbers as text ("inf", "1,146.31"), truth as text ("false"), and NaN.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from experiments.records import AxisValue

MOST_TEXT = 200  # characters of a name that is kept


def number(value: object) -> float | None:
    """A finite number, from a text too; None for anything else, truth values included."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value.replace(",", "") if isinstance(value, str) else value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def count(value: object) -> int | None:
    """A whole number of things, from 0 to what a float can count."""
    found = number(value)
    return int(found) if found is not None and 0 <= found < 2**53 and found == int(found) else None


def flag(value: object) -> bool | None:
    """A truth value, also where it is written as a text."""
    if isinstance(value, bool):
        return value
    told = value.strip().lower() if isinstance(value, str) else None
    return {"true": True, "on": True, "false": False, "off": False, "none": False}.get(told or "")


def text(value: object) -> str | None:
    """A text that says something, cut to a length that a page can bear."""
    if not isinstance(value, str) or not value.strip():
        return None
    return "".join(c for c in value.strip()[:MOST_TEXT] if c.isprintable()) or None


def axis(value: object) -> AxisValue:
    """A setting as a point holds it: truth, whole number, number or text; None otherwise."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        told = flag(value)
        return text(value) if told is None or value.lower() == "none" else told
    whole = count(value)
    return whole if whole is not None else number(value)


def mapping(value: object) -> Mapping[str, object]:
    """An object of the file; empty where it is none. Keys are texts."""
    if not isinstance(value, Mapping):
        return {}
    return {str(name): cell for name, cell in value.items()}


def rows(value: object) -> list[Mapping[str, object]]:
    """The objects of a list; empty where it is none."""
    return [mapping(row) for row in listed(value) if isinstance(row, Mapping)]


def listed(value: object) -> Sequence[object]:
    """A list of the file; empty where it is none."""
    return value if isinstance(value, list) else ()


def numbers(value: object) -> list[float]:
    """The finite numbers of a list, in order."""
    return [found for cell in listed(value) if (found := number(cell)) is not None]


def texts(value: object) -> tuple[str, ...]:
    """The texts of a list that say something, in order."""
    return tuple(found for cell in listed(value) if (found := text(cell)) is not None)


def at(value: object, *path: str) -> object:
    """What stands at the end of a path of names; None where the path ends before."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
