"""Phrases that the command line, reports and pages share."""

from __future__ import annotations

from collections.abc import Mapping


def counts_words(counts: Mapping[str, int]) -> str:
    """`20 ok, 2 failed` of a run's counts by state; empty where there is none."""
    return ", ".join(f"{count:,} {state}" for state, count in counts.items() if count)
