"""Requests with the lengths, arrival times and shared prefixes of recorded traces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from experiments.content import Content
from experiments.errors import WorkloadError
from experiments.identity import seed_of
from experiments.records import AxisValue
from experiments.targets.base import TargetFacts
from experiments.traces import BLOCK_TOKENS, TraceRow, read_trace
from experiments.workload import WorkItem, Workload, check_fit
from experiments.workload_specs import TraceSpec, opened


@dataclass(frozen=True, kw_only=True)
class ScaledRow:
    """A row of a trace, and what it comes to on this model."""

    row: TraceRow
    factor: float
    prompt_tokens: int
    output_tokens: int

    @property
    def total(self) -> int:
        """Prompt and output together."""
        return self.prompt_tokens + self.output_tokens

    @classmethod
    def of(cls, row: TraceRow, factor: float, spec: TraceSpec) -> ScaledRow:
        """Both lengths times `factor`, and at least the minima of the spec."""
        return cls(
            row=row,
            factor=factor,
            prompt_tokens=max(spec.min_prompt_tokens, round(row.prompt_tokens * factor)),
            output_tokens=max(spec.min_output_tokens, round(row.output_tokens * factor)),
        )


@dataclass(frozen=True, kw_only=True)
class TraceWorkload(Workload):
    """Scaled rows of traces, started again from the top (with fresh content) when they run out."""

    spec: TraceSpec
    trace: tuple[ScaledRow, ...] = field(repr=False)
    failed: int = 0  # requests of the files that failed when they were recorded: left out
    content: Content

    @property
    def rows(self) -> int:
        """Requests of one lap."""
        return len(self.trace)

    @property
    def longest(self) -> int:
        """Of the rows, as scaled."""
        return max(row.total for row in self.trace)

    @property
    def shortest_prompt(self) -> int:
        """Of the rows, as scaled."""
        return min(row.prompt_tokens for row in self.trace)

    def _asked(self) -> list[object]:
        rows = [
            (r.prompt_tokens, r.output_tokens, r.arrival_s, r.delay_s, r.session, r.block_ids, f)
            for r, f in ((scaled.row, scaled.factor) for scaled in self.trace)
        ]
        least = (self.spec.min_prompt_tokens, self.spec.min_output_tokens)
        return [rows, *least, self.content.content_hash]

    def description(self) -> dict[str, AxisValue]:
        """Also the factors that were used and how many rows share a prefix."""
        used = sorted({scaled.factor for scaled in self.trace})
        return {
            **super().description(),
            "content": self.content.name,
            "scale_used": used[0] if len(used) == 1 else ", ".join(f"{f:.4g}" for f in used),
            "rows": self.rows,
            "failed_rows": self.failed,
            "shared_prefixes": any(scaled.row.block_ids for scaled in self.trace),
        }

    def item(self, index: int, salt: str) -> WorkItem:
        """Row `index`, modulo the number of rows."""
        lap, at = divmod(index, self.rows)
        scaled = self.trace[at]
        ids = self._block_ids(scaled, (salt, lap))[: scaled.prompt_tokens]
        ids += self.content.passage(scaled.prompt_tokens - len(ids), index, salt, "own")
        return WorkItem(
            index=index,
            prompt_token_ids=tuple(ids),
            output_tokens=scaled.output_tokens,
            seed=seed_of(salt, index),
            kind="trace",
            so_args=self.spec.so_args,
        )

    def arrival_s(self, index: int) -> float | None:
        """Of row `index`, once: a second lap has no instants."""
        return self.trace[index].row.arrival_s if index < self.rows else None

    def delay_s(self, index: int) -> float | None:
        """Of row `index`, in every lap."""
        return self.trace[index % self.rows].row.delay_s

    @property
    def has_sessions(self) -> bool:
        """True where a row is a later turn: it has a session and no instant of its own."""
        return any(has_later_turns([scaled.row]) for scaled in self.trace)

    def session(self, number: int) -> tuple[int, ...]:
        """Conversation `number` in the order of first turns, modulo their number."""
        lap, at = divmod(number, len(self._sessions))
        return tuple(lap * self.rows + row for row in self._sessions[at])

    def session_tokens(self, turns: int | None) -> int:
        """Row by row where the trace has its own conversations."""
        if turns is not None:
            return super().session_tokens(turns)
        exact = self.spec.exact_output_length
        return max(
            sum(row.total if exact else row.prompt_tokens + 1 for row in rows)
            for rows in ([self.trace[at] for at in each] for each in self._sessions)
        )

    @cached_property
    def _sessions(self) -> tuple[tuple[int, ...], ...]:
        return tuple(map(tuple, grouped([scaled.row for scaled in self.trace])))

    def _block_ids(self, scaled: ScaledRow, salt: tuple[object, ...]) -> list[int]:
        """Block k covers scaled positions round(512 k f) to round(512 (k+1) f)."""
        ids = scaled.row.block_ids
        edges = np.rint(BLOCK_TOKENS * scaled.factor * np.arange(len(ids) + 1)).astype(np.int64)
        sizes: np.ndarray = np.diff(edges)
        blocks = np.repeat(np.array(ids, dtype=np.int64), sizes)
        places = np.arange(int(edges[-1])) - np.repeat(edges[:-1], sizes)
        return self.content.blocks(blocks, places, *salt)


def prepare_trace(spec: TraceSpec, facts: TargetFacts, content: Content) -> TraceWorkload:
    """Read the files and scale their rows. WorkloadError where one is damaged or does not fit."""
    paths = [spec.path] if isinstance(spec.path, str) else spec.path
    if not paths:
        raise WorkloadError("names no file", where=f"workload {spec.name}: path")
    traces = [read_trace(opened(path)) for path in paths]
    dealt: list[list[ScaledRow]] = []
    for number, trace in enumerate(traces):
        rows = [_named(row, number) for row in trace.rows[: spec.max_rows]]
        factor = _factor(spec, rows, facts)
        dealt.append([ScaledRow.of(row, factor, spec) for row in rows])
    return TraceWorkload(
        spec=spec,
        facts=facts,
        trace=tuple(row for turn in zip(*dealt, strict=False) for row in turn),
        failed=sum(trace.failed for trace in traces),
        content=content,
    )


def grouped(rows: Sequence[TraceRow]) -> list[list[int]]:
    """The rows of each conversation, in the order of first turns; a row without one is alone."""
    if not has_later_turns(rows):
        return [[at] for at in range(len(rows))]
    found: dict[object, list[int]] = {}
    for at, row in enumerate(rows):
        found.setdefault(at if row.session is None else row.session, []).append(at)
    return list(found.values())


def has_later_turns(rows: Sequence[TraceRow]) -> bool:
    """True where a row has a session and no instant of its own."""
    return any(row.session is not None and row.arrival_s is None for row in rows)


def _named(row: TraceRow, file: int) -> TraceRow:
    """Sessions of two files are two, whatever they are called."""
    return row if row.session is None else replace(row, session=f"{file}:{row.session}")


def _factor(spec: TraceSpec, rows: Sequence[TraceRow], facts: TargetFacts) -> float:
    """Of one file: the longest row, or the longest conversation, shall fit the context."""
    each = [[rows[at] for at in turns] for turns in grouped(rows)]
    longest = max(each, key=_tokens)
    if spec.scale == "auto":
        # Each minimum may lengthen a row and each rounding may add half a token.
        minima = (spec.min_prompt_tokens + spec.min_output_tokens) * len(longest)
        total = _tokens(longest)
        room = total if facts.max_positions is None else facts.max_positions - minima
        factor = min(1.0, max(room, 1) / total)
    else:
        factor = spec.scale
    if not factor > 0:
        raise WorkloadError(f"scale is {factor}, not above 0", where=f"workload {spec.name}")
    tokens = sum(ScaledRow.of(row, factor, spec).total for row in longest)
    check_fit(tokens, facts, f"workload {spec.name}", "Lower scale, or use auto.")
    return factor


def _tokens(rows: Sequence[TraceRow]) -> int:
    return sum(row.prompt_tokens + row.output_tokens for row in rows)
