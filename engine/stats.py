"""Counters of an engine, as one reading, and as Prometheus reads them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields


def _now(sentence: str) -> dict[str, str]:
    return {"kind": "gauge", "sentence": sentence}


def _since_start(sentence: str) -> dict[str, str]:
    return {"kind": "counter", "sentence": sentence}


@dataclass(kw_only=True)
class SchedulerCounts:
    """What a scheduler has seen since it started."""

    preemptions: int = 0
    swaps_out: int = 0  # preemptions that kept their caches, in host memory
    prompt_tokens: int = 0  # run, replays included
    output_tokens: int = 0  # delivered
    proposed_tokens: int = 0
    accepted_tokens: int = 0
    wasted_steps: int = 0


@dataclass(frozen=True, kw_only=True)
class GraphCounts:
    """Of captured steps."""

    graphs: int = 0
    graph_bytes: int = 0
    replayed_steps: int = 0


@dataclass(frozen=True, kw_only=True)
class EngineStats:
    """One reading: some fields are of now, the others since the engine started. Seconds.

    A loop that overlaps spends its time in four stages: it plans, launches, waits for the
    device and settles. Where the device works within `launch`, as a CPU does, `wait_s` is 0.
    """

    running: int = field(default=0, metadata=_now("Sequences with a slot."))
    waiting: int = field(default=0, metadata=_now("Sequences without a slot."))
    blocks_used: int = field(default=0, metadata=_now("Cache blocks held."))
    blocks_total: int = field(default=0, metadata=_now("Cache blocks there are."))
    host_blocks_used: int = field(
        default=0, metadata=_now("Cache blocks of preempted sequences in host memory.")
    )
    batch_tokens: int = field(default=0, metadata=_now("Rows of the newest step."))
    batch_sequences: int = field(default=0, metadata=_now("Sequences of the newest step."))
    preemptions: int = field(
        default=0, metadata=_since_start("Times a sequence lost its place for want of blocks.")
    )
    swaps_out: int = field(
        default=0, metadata=_since_start("Preemptions that kept their caches in host memory.")
    )
    steps: int = field(default=0, metadata=_since_start("Steps settled."))
    graphs: int = field(default=0, metadata=_now("Captured steps held."))
    graph_bytes: int = field(default=0, metadata=_now("Memory of the captured steps."))
    replayed_steps: int = field(
        default=0, metadata=_since_start("Steps that were replayed from a captured one.")
    )
    wasted_steps: int = field(
        default=0,
        metadata=_since_start("Rows of steps, by sequence, run after the sequence had ended."),
    )
    plan_s: float = field(default=0.0, metadata=_since_start("Time spent planning."))
    launch_s: float = field(default=0.0, metadata=_since_start("Time spent launching."))
    wait_s: float = field(default=0.0, metadata=_since_start("Time spent waiting for the device."))
    settle_s: float = field(default=0.0, metadata=_since_start("Time spent settling."))
    scheduled_tokens: int = field(default=0, metadata=_since_start("Rows run."))
    prompt_tokens: int = field(
        default=0, metadata=_since_start("Prompt rows run, replays after a preemption included.")
    )
    output_tokens: int = field(default=0, metadata=_since_start("Tokens delivered."))
    proposed_tokens: int = field(default=0, metadata=_since_start("Drafts verified."))
    accepted_tokens: int = field(default=0, metadata=_since_start("Drafts that stood."))
    decoder_rows_run: int = field(
        default=0, metadata=_since_start("Rows that ran the decoder half.")
    )
    decoder_rows_skipped: int = field(
        default=0, metadata=_since_start("Rows that decoder truncation saved.")
    )

    def __add__(self, other: EngineStats) -> EngineStats:
        """Both engines together."""
        return EngineStats(
            **{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        )


def prometheus_text(stats: EngineStats) -> str:
    """A reading in the text exposition format of Prometheus, version 0.0.4."""
    lines: list[str] = []
    for f in fields(stats):
        kind, sentence = f.metadata["kind"], f.metadata["sentence"]
        stem = f"{f.name[:-2]}_seconds" if f.name.endswith("_s") else f.name
        name = f"engine_{stem.removesuffix('_total')}" + ("_total" if kind == "counter" else "")
        lines += [
            f"# HELP {name} {sentence}",
            f"# TYPE {name} {kind}",
            f"{name} {getattr(stats, f.name)}",
        ]
    return "\n".join(lines) + "\n"
