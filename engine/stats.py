"""Counters of an engine, as one reading."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, kw_only=True)
class EngineStats:
    """Since the engine started, but for the first four, which are of now. Times in seconds."""

    running: int = 0
    waiting: int = 0
    blocks_used: int = 0
    blocks_total: int = 0
    preemptions: int = 0
    steps: int = 0
    plan_s: float = 0.0
    launch_s: float = 0.0
    settle_s: float = 0.0
    prompt_tokens: int = 0  # run, replays after a preemption included
    output_tokens: int = 0
    proposed_tokens: int = 0
    accepted_tokens: int = 0
    decoder_rows_run: int = 0
    decoder_rows_skipped: int = 0  # what decoder truncation saved

    def __add__(self, other: EngineStats) -> EngineStats:
        """Both engines together."""
        return EngineStats(
            **{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        )
