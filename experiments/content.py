"""What prompts consist of where only their lengths are given: random ids, or text."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from experiments.identity import digest, generator, mixed, seed_of


class Content(Protocol):
    """An endless supply of token ids, each a pure function of the key asked for."""

    @property
    def name(self) -> str:
        """What a record calls it."""
        ...

    @property
    def content_hash(self) -> str:
        """Identity of what the ids are drawn from."""
        ...

    def passage(self, count: int, index: int, *key: object) -> list[int]:
        """`count` ids that belong to `index` of `key` alone, as far as there are enough."""
        ...

    def blocks(self, block_ids: np.ndarray, places: np.ndarray, *salt: object) -> list[int]:
        """One id for each place in its block: [n] and [n] int64; equal blocks, equal ids."""
        ...


@dataclass(frozen=True, kw_only=True)
class RandomIds:
    """Every id that is not reserved, drawn evenly. Acceptance of drafts on them means little."""

    alphabet: np.ndarray = field(repr=False)  # [ids] int64
    name: str = "random ids"

    @property
    def content_hash(self) -> str:
        """The ids are noise: the name says it all."""
        return digest(self.name)

    def passage(self, count: int, index: int, *key: object) -> list[int]:
        """Drawn from a stream of their own."""
        drawn = generator(*key, index).integers(0, len(self.alphabet), size=count)
        return self.alphabet[drawn].tolist()

    def blocks(self, block_ids: np.ndarray, places: np.ndarray, *salt: object) -> list[int]:
        """A hash of block and place: made while requests are in flight, so without a stream."""
        words = mixed(_block_words(block_ids, salt)) + places.view(np.uint64)
        return self.alphabet[mixed(words) % np.uint64(len(self.alphabet))].tolist()


@dataclass(frozen=True, kw_only=True)
class TextIds:
    """Consecutive ids of one tokenised text, from a place that the key picks.

    Indices of one key are a stride apart that has no divisor in common with the length of the
    text: no two begin at one place until every place was a beginning.
    """

    stream: np.ndarray = field(repr=False)  # [ids] int64, at least one
    name: str = "text"

    @property
    def content_hash(self) -> str:
        """Of the tokenised text."""
        return self._hash

    @cached_property
    def _hash(self) -> str:
        return digest(self.stream.tolist())

    @cached_property
    def _stride(self) -> int:
        length = len(self.stream)
        near = (step for step in range(round(0.618 * length) or 1, 2 * length + 1))
        return next(step for step in near if math.gcd(step, length) == 1)

    def passage(self, count: int, index: int, *key: object) -> list[int]:
        """From the index's place on, from the top again at the end."""
        start = (seed_of(*key) + index * self._stride) % len(self.stream)
        return self.stream[(start + np.arange(count)) % len(self.stream)].tolist()

    def blocks(self, block_ids: np.ndarray, places: np.ndarray, *salt: object) -> list[int]:
        """Each block is a passage of its own."""
        starts = mixed(_block_words(block_ids, salt)) % np.uint64(len(self.stream))
        return self.stream[(starts.astype(np.int64) + places) % len(self.stream)].tolist()


def _block_words(block_ids: np.ndarray, salt: tuple[object, ...]) -> np.ndarray:
    return block_ids.view(np.uint64) ^ np.uint64(seed_of(*salt))
