"""What is asked: prompts and lengths, the same for the same seed on every machine."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from experiments.errors import WorkloadError
from experiments.records import AxisValue
from experiments.targets.base import TargetFacts
from experiments.traces import BLOCK_TOKENS, TraceRow, json_rows, read_text, read_trace
from experiments.workload_specs import (
    SyntheticSpec,
    TextSpec,
    TraceSpec,
    WorkloadSpec,
    opened,
)


@dataclass(frozen=True, kw_only=True)
class WorkItem:
    """One request to send."""

    index: int
    prompt_token_ids: tuple[int, ...]
    output_tokens: int
    seed: int
    kind: str
    arrival_s: float | None = None  # on the trace's clock; None: whenever a slot is free
    delay_s: float | None = None
    session: str | None = None


def prepare(spec: WorkloadSpec, facts: TargetFacts, encode: Callable[[str], list[int]]) -> Workload:
    """Read what the workload needs and fit it to the model.

    WorkloadError where a file is damaged or a request cannot fit the context.
    """
    if isinstance(spec, SyntheticSpec):
        return SyntheticWorkload(spec=spec, facts=facts)
    if isinstance(spec, TraceSpec):
        return _prepare_trace(spec, facts)
    return _prepare_text(spec, facts, encode)


@dataclass(frozen=True, kw_only=True)
class Workload(ABC):
    """An endless supply of requests: item i is a pure function of (workload, salt, i)."""

    facts: TargetFacts

    @property
    @abstractmethod
    def content_hash(self) -> str:
        """Identity of what is asked: sha256 over lengths and content sources, not over paths."""

    @abstractmethod
    def item(self, index: int, salt: str) -> WorkItem:
        """Request `index`; another salt gives other content of the same shape."""

    def description(self) -> dict[str, AxisValue]:
        """Facts that a record carries beside the fields of the plan."""
        return {"content": "random ids", "content_hash": self.content_hash}

    @cached_property
    def _alphabet(self) -> np.ndarray:
        reserved = set(self.facts.reserved_token_ids)
        return np.array([i for i in range(self.facts.vocab_size) if i not in reserved])

    def _random_ids(self, count: int, *key: object) -> list[int]:
        drawn = generator(*key).integers(0, len(self._alphabet), size=count)
        return self._alphabet[drawn].tolist()


@dataclass(frozen=True, kw_only=True)
class SyntheticWorkload(Workload):
    """Random ids of stated lengths."""

    spec: SyntheticSpec

    def __post_init__(self) -> None:
        longest = [round(n * (1 + self.spec.spread)) for n in self._lengths]
        _check_fit(sum(longest), self.facts, f"workload {self.spec.name}")

    @property
    def _lengths(self) -> tuple[int, int]:
        return self.spec.prompt_tokens, self.spec.output_tokens

    @property
    def content_hash(self) -> str:
        """Of the stated lengths."""
        return digest(self._lengths, self.spec.spread)

    def item(self, index: int, salt: str) -> WorkItem:
        """Lengths are drawn from the index alone, so that every arm asks for the same."""
        spread = generator("lengths", index).uniform(-self.spec.spread, self.spec.spread, size=2)
        prompt, output = (
            max(1, round(n * (1 + s))) for n, s in zip(self._lengths, spread, strict=True)
        )
        return WorkItem(
            index=index,
            prompt_token_ids=tuple(self._random_ids(prompt, salt, index)),
            output_tokens=output,
            seed=seed_of(salt, index),
            kind="synthetic",
        )


@dataclass(frozen=True, kw_only=True)
class TraceWorkload(Workload):
    """Scaled rows of traces, started again from the top (with fresh content) when they run out."""

    spec: TraceSpec
    rows: tuple[TraceRow, ...]
    factors: tuple[float, ...]  # of each row

    @cached_property
    def content_hash(self) -> str:
        """Of what the rows ask for."""
        rows = [
            (r.prompt_tokens, r.output_tokens, r.arrival_s, r.delay_s, r.session, r.block_ids, f)
            for r, f in zip(self.rows, self.factors, strict=True)
        ]
        return digest(rows, self.spec.min_prompt_tokens, self.spec.min_output_tokens)

    def description(self) -> dict[str, AxisValue]:
        """Also the factors that were used and how many rows share a prefix."""
        used = sorted(set(self.factors))
        return {
            **super().description(),
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
        ids += self._random_ids(length - len(ids), salt, "own", index)
        return WorkItem(
            index=index,
            prompt_token_ids=tuple(ids),
            output_tokens=max(self.spec.min_output_tokens, round(row.output_tokens * factor)),
            seed=seed_of(salt, index),
            kind="trace",
            arrival_s=row.arrival_s if lap == 0 else None,
            delay_s=row.delay_s,
            session=row.session,
        )

    def _block_ids(self, row: TraceRow, factor: float, salt: tuple[object, ...]) -> list[int]:
        """Block k covers scaled positions round(512 k f) to round(512 (k+1) f).

        A token is a hash of its block id and its place in the block: a row may have hundreds
        of blocks, and it is made while requests are in flight.
        """
        edges = np.rint(BLOCK_TOKENS * factor * np.arange(len(row.block_ids) + 1)).astype(np.int64)
        sizes = np.diff(edges)
        blocks = np.repeat(np.array(row.block_ids, dtype=np.int64), sizes)
        places = np.arange(edges[-1]) - np.repeat(edges[:-1], sizes)
        mixed = _mixed(
            _mixed(blocks.view(np.uint64) ^ np.uint64(seed_of(*salt))) + places.view(np.uint64)
        )
        return self._alphabet[mixed % np.uint64(len(self._alphabet))].tolist()


@dataclass(frozen=True, kw_only=True)
class TextWorkload(Workload):
    """Tokenised prompts, in file order from a place that the salt picks."""

    spec: TextSpec
    prompts: tuple[tuple[int, ...], ...] = field(repr=False)

    @cached_property
    def content_hash(self) -> str:
        """Of what the rows ask for."""
        return digest(self.prompts, self.spec.output_tokens)

    def description(self) -> dict[str, AxisValue]:
        """Says that the content is text."""
        return {**super().description(), "content": "text", "rows": len(self.prompts)}

    def item(self, index: int, salt: str) -> WorkItem:
        """Prompt `index` after the salted start, modulo the number of prompts."""
        at = (index + seed_of(salt, "start")) % len(self.prompts)
        return WorkItem(
            index=index,
            prompt_token_ids=self.prompts[at],
            output_tokens=self.spec.output_tokens,
            seed=seed_of(salt, index),
            kind="text",
        )


def _prepare_trace(spec: TraceSpec, facts: TargetFacts) -> TraceWorkload:
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
    return TraceWorkload(spec=spec, facts=facts, rows=rows, factors=factors)


def _factor(spec: TraceSpec, rows: Sequence[TraceRow], facts: TargetFacts) -> float:
    longest = max(rows, key=lambda row: row.prompt_tokens + row.output_tokens)
    total = longest.prompt_tokens + longest.output_tokens
    if spec.scale == "auto":
        # Each minimum may lengthen a row and each rounding may add half a token.
        room = facts.max_positions - spec.min_prompt_tokens - spec.min_output_tokens
        factor = min(1.0, max(room, 1) / total)
    else:
        factor = spec.scale
    if not factor > 0:
        raise WorkloadError(f"scale is {factor}, not above 0", where=f"workload {spec.name}")
    prompt = max(spec.min_prompt_tokens, round(longest.prompt_tokens * factor))
    output = max(spec.min_output_tokens, round(longest.output_tokens * factor))
    _check_fit(prompt + output, facts, f"workload {spec.name}", "Lower scale, or use auto.")
    return factor


def _prepare_text(
    spec: TextSpec, facts: TargetFacts, encode: Callable[[str], list[int]]
) -> TextWorkload:
    path = opened(spec.path)
    text = read_text(path)
    prompts = (
        [encode(prompt) for prompt in _jsonl_prompts(path, text)]
        if path.suffix == ".jsonl"
        else _cut(spec, encode(text))
    )
    if spec.prompt_tokens is not None:
        prompts = [prompt[: spec.prompt_tokens] for prompt in prompts]
    prompts = [prompt for prompt in prompts if prompt]
    if not prompts:
        raise WorkloadError("has no prompt", where=str(path))
    longest = max(len(prompt) for prompt in prompts)
    _check_fit(
        longest + spec.output_tokens, facts, f"workload {spec.name}", "Set or lower prompt_tokens."
    )
    return TextWorkload(spec=spec, facts=facts, prompts=tuple(tuple(p) for p in prompts))


def _cut(spec: TextSpec, ids: list[int]) -> list[list[int]]:
    if spec.prompt_tokens is None:
        return [ids]
    size = spec.prompt_tokens
    whole = len(ids) - len(ids) % size if len(ids) >= size else len(ids)
    return [ids[start : start + size] for start in range(0, whole, size)]


def _jsonl_prompts(path: Path, text: str) -> list[str]:
    prompts = []
    for place, row in json_rows(path, text.splitlines()):
        prompt = row.get("prompt")
        if not isinstance(prompt, str):
            raise WorkloadError("has no text field `prompt`", where=place)
        prompts.append(prompt)
    return prompts


def _check_fit(
    tokens: int,
    facts: TargetFacts,
    where: str,
    remedy: str = "Lower prompt_tokens or output_tokens.",
) -> None:
    if tokens > facts.max_positions:
        raise WorkloadError(
            f"its longest request has {tokens} tokens and the context holds {facts.max_positions}",
            where=where,
            remedy=remedy,
        )


def digest(*parts: object) -> str:
    """First 16 hex digits of the sha256 of the canonical JSON of the parts."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def seed_of(*key: object) -> int:
    """A seed in 0..2^63-1 that is a pure function of the key."""
    return int(digest(*key), 16) >> 1


def generator(*key: object) -> np.random.Generator:
    """A PCG64 stream that is a pure function of the key."""
    return np.random.Generator(np.random.PCG64(seed_of(*key)))


def _mixed(keys: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64, a bijection of 64-bit words: [n] uint64 in, [n] uint64 out."""
    words = keys + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
