"""Counters of a server in the Prometheus text format."""

from __future__ import annotations

import math

_COUNTING = ("_total", "_count", "_sum")


def counters(text: str) -> dict[str, float]:
    """Every counter by name, summed over its labels; gauges and buckets are left out.

    A counter is what the text declares as one, or what is named like one (`_total`, `_count`,
    `_sum`). Lines that are none of the format are passed over.
    """
    found: dict[str, float] = {}
    declared: set[str] = set()
    for line in text.splitlines():
        words = line.split()
        if words[:2] == ["#", "TYPE"] and words[3:] == ["counter"]:
            declared.add(words[2])
        elif words and not line.startswith("#"):
            name = words[0].partition("{")[0]
            value = _number(line.rpartition("}")[2].split() if "}" in line else words[1:])
            if value is not None and (name in declared or name.endswith(_COUNTING)):
                found[name] = found.get(name, 0.0) + value
    return found


def _number(words: list[str]) -> float | None:
    """The value that follows a name; a timestamp may stand behind it."""
    try:
        value = float(words[0])
    except (IndexError, ValueError):
        return None
    return value if math.isfinite(value) else None
