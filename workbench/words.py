"""Phrases that the command line, reports and pages share."""

from __future__ import annotations

import re
from collections.abc import Mapping

from workbench.figures_text import (
    MISSING,
    axis_mark,
    axis_phrase,
    axis_words,
    interval,
    value_text,
)
from workbench.spreads import TOO_FEW, says_nothing

_NUMBER = r"(\d+(?:\.\d+)?)"
_TIME = re.compile(rf"(?:{_NUMBER}h)?(?:{_NUMBER}m)?(?:{_NUMBER}s)?")
WITHIN_RUN = "95 % intervals are within-run where no repeats are named"


def interval_words(low: float | None, high: float | None, repeats: int) -> str:
    """`11.9 to 12.8`; of several repeats that say nothing (`workbench.spreads`) that they do."""
    return TOO_FEW if says_nothing(low, high, repeats) else interval(low, high)


def counts_words(counts: Mapping[str, int]) -> str:
    """`20 ok, 2 failed` of a run's counts by state; empty where there is none."""
    return ", ".join(f"{count:,} {state}" for state, count in counts.items() if count)


def point_words(axes: Mapping[str, object]) -> str:
    """A point in a sentence: `16 in flight, draft length 5`; axes it lacks are left out."""
    texts = {name: value_text(value) for name, value in axes.items()}
    phrases = [axis_phrase(name, text) for name, text in texts.items() if text != MISSING]
    return ", ".join(phrases) or "the only configuration"


def point_marks(axes: Mapping[str, object]) -> str:
    """A point as short as beside the points of a figure: `c16 d5 k44 dp1`."""
    return " ".join(f"{axis_mark(name)}{value_text(value)}" for name, value in axes.items())


def marks_legend(axes: Mapping[str, object]) -> str:
    """What the marks stand for: `c = requests in flight, d = draft length`; words need no line."""
    marks = {axis_mark(name).strip(): axis_words(name) for name in axes}
    return ", ".join(f"{mark} = {words}" for mark, words in marks.items() if mark != words)


def duration_words(seconds: float | None) -> str:
    """`1 h 05 min`, `3 min`, `40 s`; `not known` without a forecast."""
    if seconds is None:
        return "not known"
    whole = max(0, round(seconds))
    if whole < 90:
        return f"{whole} s"
    minutes = round(whole / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02} min"


def seconds_of(text: str) -> float | None:
    """Seconds of `4h`, `90m`, `45s` or `1h30m`; None for anything else, and for no time at all."""
    found = _TIME.fullmatch(text.strip().lower())
    if found is None:
        return None
    hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + seconds or None
