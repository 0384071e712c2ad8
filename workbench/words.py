"""Phrases that the command line, reports and pages share."""

from __future__ import annotations

from collections.abc import Mapping

from workbench.figures_text import MISSING, axis_mark, axis_phrase, axis_words, value_text

WITHIN_RUN = "95 % intervals are within-run where no repeats are named"


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
    """What the marks stand for: `c = requests in flight, d = draft length`."""
    return ", ".join(f"{axis_mark(name).strip()} = {axis_words(name)}" for name in axes)
