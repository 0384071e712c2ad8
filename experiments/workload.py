"""What is asked: prompts and lengths, the same for the same seed on every machine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from experiments.content import RandomIds
from experiments.errors import WorkloadError
from experiments.identity import digest, generator, seed_of
from experiments.records import AxisValue
from experiments.targets.base import TargetFacts
from experiments.workload_specs import SyntheticSpec, TextSpec


@dataclass(frozen=True, kw_only=True)
class WorkItem:
    """One request to send."""

    index: int
    prompt_token_ids: tuple[int, ...]
    output_tokens: int
    seed: int
    kind: str
    session: int | None = None  # a conversation, and the place in it
    turn: int | None = None


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

    def arrival_s(self, index: int) -> float | None:
        """When request `index` was sent, on the trace's clock; None: no instant of its own."""
        del index
        return None

    def description(self) -> dict[str, AxisValue]:
        """Facts that a record carries beside the fields of the plan."""
        return {"content": "random ids", "content_hash": self.content_hash}


@dataclass(frozen=True, kw_only=True)
class SyntheticWorkload(Workload):
    """Random ids of stated lengths."""

    spec: SyntheticSpec

    def __post_init__(self) -> None:
        longest = [round(n * (1 + self.spec.spread)) for n in self._lengths]
        check_fit(sum(longest), self.facts, f"workload {self.spec.name}")

    @cached_property
    def _content(self) -> RandomIds:
        return random_ids(self.facts)

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
            prompt_token_ids=tuple(self._content.passage(prompt, salt, index)),
            output_tokens=output,
            seed=seed_of(salt, index),
            kind="synthetic",
        )


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


def random_ids(facts: TargetFacts) -> RandomIds:
    """Every id of the model that has no meaning of its own. WorkloadError: ids are not known."""
    if facts.vocab_size is None:
        raise WorkloadError(
            "random ids need a vocabulary, and this server's is not known",
            where="http",
            remedy="Give http.tokenizer, or http.vocab_size.",
        )
    reserved = set(facts.reserved_token_ids)
    return RandomIds(alphabet=np.array([i for i in range(facts.vocab_size) if i not in reserved]))


def check_fit(
    tokens: int,
    facts: TargetFacts,
    where: str,
    remedy: str = "Lower prompt_tokens or output_tokens.",
) -> None:
    """WorkloadError unless the context, where known, holds `tokens`, prompt and output together."""
    if facts.max_positions is not None and tokens > facts.max_positions:
        raise WorkloadError(
            f"its longest request has {tokens} tokens and the context holds {facts.max_positions}",
            where=where,
            remedy=remedy,
        )
