"""Bits per byte of held-out text under a checkpoint, through the engine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.request import SamplingParams

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np

    from engine.llm import LLM, Completion

CHUNK_TOKENS = 2048
_TOGETHER = 16  # prompts handed to the engine at once


@dataclass(frozen=True, kw_only=True)
class Score:
    """Bits that some tokens cost, and the text bytes they stand for."""

    bits: float
    tokens: int
    text_bytes: float

    @property
    def bits_per_byte(self) -> float:
        """The rate."""
        return self.bits / self.text_bytes


def chunks(tokens: np.ndarray, stride: int = 1) -> list[list[int]]:
    """Cut a token string into prompts of CHUNK_TOKENS that share one token with their neighbour.

    Every token but the very first is then predicted once, by a prompt of its own stretch.
    `stride` n keeps each n-th chunk.
    """
    step = CHUNK_TOKENS - 1
    starts = range(0, len(tokens) - 1, step)
    cut = [tokens[start : start + CHUNK_TOKENS].tolist() for start in starts]
    return cut[::stride]


def score(llm: LLM, prompts: Sequence[Sequence[int]], bytes_per_token: float) -> Score:
    """Sum what the tokens of the prompts cost, each after the ones before it in its prompt."""
    bits, count = 0.0, 0
    ask = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=True)
    for batch in _batches(prompts, _TOGETHER):
        for done in llm.generate(batch, ask):
            costs = [entry.logprob for entry in done.prompt_logprobs or () if entry is not None]
            bits -= math.fsum(costs) / math.log(2)
            count += len(costs)
    return Score(bits=bits, tokens=count, text_bytes=count * bytes_per_token)


def weighted(scores: Mapping[str, Score]) -> Score:
    """All kinds together, weighted by their bytes."""
    return Score(
        bits=math.fsum(part.bits for part in scores.values()),
        tokens=sum(part.tokens for part in scores.values()),
        text_bytes=math.fsum(part.text_bytes for part in scores.values()),
    )


def forced(
    llm: LLM, prompts: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]]
) -> list[Completion]:
    """Teacher-force continuations; each completion has the log-probabilities and the best token."""
    asks = [
        SamplingParams(
            temperature=0.0,
            max_tokens=len(tokens),
            golden_token_ids=tuple(tokens),
            logprobs=1,
            ignore_eos=True,
        )
        for tokens in continuations
    ]
    done: list[Completion] = []
    for start in range(0, len(prompts), _TOGETHER):
        part = slice(start, start + _TOGETHER)
        done += llm.generate(prompts[part], asks[part])
    return done


def _batches(items: Sequence[Sequence[int]], size: int) -> Iterable[Sequence[Sequence[int]]]:
    return (items[start : start + size] for start in range(0, len(items), size))
