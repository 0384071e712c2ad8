"""What is asked: prompts and lengths, the same for the same seed on every machine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from experiments.content import Content, RandomIds
from experiments.errors import WorkloadError
from experiments.identity import digest, generator, seed_of
from experiments.records import AxisValue
from experiments.targets.base import TargetFacts
from experiments.workload_specs import SyntheticSpec, TextSpec, WorkloadSpec


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
    so_args: dict[str, str] | None = None  # the grammar that the output follows
    keeps_text: bool = False  # the text of its output is wanted


@dataclass(frozen=True, kw_only=True)
class Whole:
    """A workload that is asked whole, once, whatever the protocol measures."""

    requests: int
    limit_s: float  # for the sending, and again for what is then in flight


@dataclass(frozen=True, kw_only=True)
class Workload(ABC):
    """An endless supply of requests: item i is a pure function of (workload, salt, i).

    Items below 0 are the warm-up's.
    """

    facts: TargetFacts
    spec: WorkloadSpec

    @cached_property
    def content_hash(self) -> str:
        """Identity of what is asked: of lengths and content sources, not of paths."""
        return digest(*self._asked())

    @abstractmethod
    def _asked(self) -> list[object]:
        """What that identity is made of."""

    @abstractmethod
    def item(self, index: int, salt: str) -> WorkItem:
        """Request `index`; another salt gives other content of the same shape."""

    @property
    @abstractmethod
    def longest(self) -> int:
        """Tokens of the longest request, prompt and output."""

    @property
    @abstractmethod
    def shortest_prompt(self) -> int:
        """Tokens of the shortest prompt."""

    def warm_up_item(self, index: int, salt: str) -> WorkItem:
        """A request of the warm-up before the trial of that salt: content that is not asked again.

        Only a prefix that the workload shares on purpose is the trial's own.
        """
        return replace(self.item(-1 - index, salt), index=index)

    @property
    def rows(self) -> int | None:
        """Requests that differ by more than their salt; None: all do."""
        return None

    @property
    def whole(self) -> Whole | None:
        """All there is to ask, each once; None: an endless supply."""
        return None

    def arrival_s(self, index: int) -> float | None:
        """When request `index` was sent, on the trace's clock; None: no instant of its own."""
        del index
        return None

    def delay_s(self, index: int) -> float | None:
        """How long after the turn before it request `index` was sent; None: it is told of none."""
        del index
        return None

    @property
    def has_sessions(self) -> bool:
        """True where some requests are later turns of a conversation."""
        return False

    def session(self, number: int) -> tuple[int, ...]:
        """The requests that are the turns of a conversation; alone where there is none."""
        return (number,)

    def session_tokens(self, turns: int | None) -> int:
        """What a conversation of so many turns (None: the longest there is) comes to.

        The most where outputs have the length asked for; else what even the shortest needs.
        """
        if turns is None:
            turns = 1
        each = self.longest if self.spec.exact_output_length else self.shortest_prompt + 1
        return turns * each

    def description(self) -> dict[str, AxisValue]:
        """Facts that a record carries beside the fields of the plan."""
        return {"content": "random ids", "content_hash": self.content_hash}


@dataclass(frozen=True, kw_only=True)
class SyntheticWorkload(Workload):
    """Stated lengths, filled with random ids or text."""

    spec: SyntheticSpec
    content: Content

    def __post_init__(self) -> None:
        check_fit(self.longest, self.facts, f"workload {self.spec.name}")

    @property
    def _lengths(self) -> tuple[int, int]:
        return self.spec.prompt_tokens, self.spec.output_tokens

    @property
    def longest(self) -> int:
        """At the upper end of the spread."""
        return sum(round(n * (1 + self.spec.spread)) for n in self._lengths)

    @property
    def shortest_prompt(self) -> int:
        """At the lower end of the spread."""
        return max(1, round(self.spec.prompt_tokens * (1 - self.spec.spread)))

    def _asked(self) -> list[object]:
        parts: list[object] = [self._lengths, self.spec.spread]
        if self.spec.content is not None:
            parts.append(self.content.content_hash)
        if self.spec.prefix_hit is not None:
            parts.append(f"prefix {self.spec.prefix_hit}")
        return parts

    def description(self) -> dict[str, AxisValue]:
        """Also what an ideal prefix cache would hit, where the plan sets it."""
        found = {**super().description(), "content": self.content.name}
        hit = self.spec.prefix_hit
        if hit is None:
            return found
        shared = self._shared(self.spec.prompt_tokens)
        expected = hit if self.spec.spread else shared / self.spec.prompt_tokens
        return {**found, "shared_prefixes": shared > 0, "expected_hit_rate": expected}

    def item(self, index: int, salt: str) -> WorkItem:
        """Lengths are drawn from the index alone, so that every arm asks for the same."""
        spread = generator("lengths", index).uniform(-self.spec.spread, self.spec.spread, size=2)
        prompt, output = (
            max(1, round(n * (1 + s))) for n, s in zip(self._lengths, spread, strict=True)
        )
        shared = self._shared(prompt)
        same = self.content.passage(shared, 0, salt, "prefix")
        return WorkItem(
            index=index,
            prompt_token_ids=(*same, *self.content.passage(prompt - shared, index, salt)),
            output_tokens=output,
            seed=seed_of(salt, index),
            kind="synthetic",
            so_args=self.spec.so_args,
        )

    def _shared(self, prompt: int) -> int:
        return min(round(prompt * (self.spec.prefix_hit or 0.0)), prompt - 1)


@dataclass(frozen=True, kw_only=True)
class TextWorkload(Workload):
    """Tokenised prompts, in file order from a place that the salt picks."""

    spec: TextSpec
    prompts: tuple[tuple[int, ...], ...] = field(repr=False)
    output_tokens: tuple[int, ...] = field(repr=False)  # of each prompt

    def __post_init__(self) -> None:
        where = f"workload {self.spec.name}"
        check_fit(self.longest, self.facts, where, "Set or lower prompt_tokens.")

    @property
    def rows(self) -> int:
        """Prompts of the file."""
        return len(self.prompts)

    @property
    def longest(self) -> int:
        """Of the rows."""
        return max(len(p) + n for p, n in zip(self.prompts, self.output_tokens, strict=True))

    @property
    def shortest_prompt(self) -> int:
        """Of the rows."""
        return min(map(len, self.prompts))

    def _asked(self) -> list[object]:
        return [self.prompts, self.output_tokens]

    def description(self) -> dict[str, AxisValue]:
        """Says that the content is text."""
        return {**super().description(), "content": "text", "rows": self.rows}

    def item(self, index: int, salt: str) -> WorkItem:
        """Prompt `index` after the salted start, modulo the number of prompts."""
        at = (index + seed_of(salt, "start")) % self.rows
        return WorkItem(
            index=index,
            prompt_token_ids=self.prompts[at],
            output_tokens=self.output_tokens[at],
            seed=seed_of(salt, index),
            kind="text",
            so_args=self.spec.so_args,
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
