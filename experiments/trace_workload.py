"""Requests with the lengths, arrival times and shared prefixes of recorded traces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from experiments.content import Content
from experiments.errors import WorkloadError
from experiments.identity import digest, seed_of
from experiments.records import AxisValue
from experiments.targets.base import TargetFacts
from experiments.traces import BLOCK_TOKENS, TraceRow, read_trace
from experiments.workload import WorkItem, Workload, check_fit
from experiments.workload_specs import TraceSpec, opened


@dataclass(frozen=True, kw_only=True)
class TraceWorkload(Workload):
    """Scaled rows of traces, started again from the top (with fresh content) when they run out."""

    spec: TraceSpec
    rows: tuple[TraceRow, ...]
    factors: tuple[float, ...]  # of each row
    content: Content

    @cached_property
    def content_hash(self) -> str:
        """Of what the rows ask for."""
        rows = [
            (r.prompt_tokens, r.output_tokens, r.arrival_s, r.delay_s, r.session, r.block_ids, f)
            for r, f in zip(self.rows, self.factors, strict=True)
        ]
        least = (self.spec.min_prompt_tokens, self.spec.min_output_tokens)
        return digest(rows, *least, self.content.content_hash)

    def description(self) -> dict[str, AxisValue]:
        """Also the factors that were used and how many rows share a prefix."""
        used = sorted(set(self.factors))
        return {
            **super().description(),
            "content": self.content.name,
            "scale_used": used[0] if len(used) == 1 else ", ".join(f"{f:.4g}" for f in used),
            "rows": len(self.rows),
            "shared_prefixes": any(row.block_ids for row in self.rows),
        }

    def item(self, index: int, salt: str) -> WorkItem:
        """Row `index`, modulo the number of rows."""
        lap, at = divmod(index, len(self.rows))
        row, factor = self.rows[at], self.factors[at]
        length = max(self.spec.min_prompt_tokens, round(row.prompt_tokens * factor))
        ids = self._block_ids(row, factor, (salt, lap))[:length]
        ids += self.content.passage(length - len(ids), salt, "own", index)
        return WorkItem(
            index=index,
            prompt_token_ids=tuple(ids),
            output_tokens=max(self.spec.min_output_tokens, round(row.output_tokens * factor)),
            seed=seed_of(salt, index),
            kind="trace",
        )

    def arrival_s(self, index: int) -> float | None:
        """Of row `index`, once: a second lap has no instants."""
        return self.rows[index].arrival_s if index < len(self.rows) else None

    def _block_ids(self, row: TraceRow, factor: float, salt: tuple[object, ...]) -> list[int]:
        """Block k covers scaled positions round(512 k f) to round(512 (k+1) f)."""
        edges = np.rint(BLOCK_TOKENS * factor * np.arange(len(row.block_ids) + 1)).astype(np.int64)
        sizes = np.diff(edges)
        blocks = np.repeat(np.array(row.block_ids, dtype=np.int64), sizes)
        places = np.arange(edges[-1]) - np.repeat(edges[:-1], sizes)
        return self.content.blocks(blocks, places, *salt)


def prepare_trace(spec: TraceSpec, facts: TargetFacts, content: Content) -> TraceWorkload:
    """Read the files and scale their rows. WorkloadError where one is damaged or does not fit."""
    paths = [spec.path] if isinstance(spec.path, str) else spec.path
    if not paths:
        raise WorkloadError("names no file", where=f"workload {spec.name}: path")
    dealt: list[list[tuple[TraceRow, float]]] = []
    for path in paths:
        rows = read_trace(opened(path))[: spec.max_rows]
        factor = _factor(spec, rows, facts)
        dealt.append([(row, factor) for row in rows])
    shortest = min(len(rows) for rows in dealt)
    pairs = (
        [pair for turn in zip(*(rows[:shortest] for rows in dealt), strict=True) for pair in turn]
        if len(dealt) > 1
        else dealt[0]
    )
    rows, factors = zip(*pairs, strict=True)
    return TraceWorkload(spec=spec, facts=facts, rows=rows, factors=factors, content=content)


def _factor(spec: TraceSpec, rows: Sequence[TraceRow], facts: TargetFacts) -> float:
    longest = max(rows, key=lambda row: row.prompt_tokens + row.output_tokens)
    total = longest.prompt_tokens + longest.output_tokens
    if spec.scale == "auto":
        # Each minimum may lengthen a row and each rounding may add half a token.
        minima = spec.min_prompt_tokens + spec.min_output_tokens
        room = total if facts.max_positions is None else facts.max_positions - minima
        factor = min(1.0, max(room, 1) / total)
    else:
        factor = spec.scale
    if not factor > 0:
        raise WorkloadError(f"scale is {factor}, not above 0", where=f"workload {spec.name}")
    prompt = max(spec.min_prompt_tokens, round(longest.prompt_tokens * factor))
    output = max(spec.min_output_tokens, round(longest.output_tokens * factor))
    check_fit(prompt + output, facts, f"workload {spec.name}", "Lower scale, or use auto.")
    return factor
