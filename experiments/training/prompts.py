"""Held-out prompts of each kind, always the same ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from experiments.training.sources import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from experiments.training.packing import Pack

_END = 1  # the id that ends a document
_PROMPT_TOKENS = 256
_LEAST_DOCUMENT_TOKENS = 120


def openings(pack: Pack, kind: str, count: int) -> list[list[int]]:
    """`count` beginnings of documents, spread evenly over the held-out set of a kind.

    A chat up to where its last answer begins; of other documents the first half, at most 256
    tokens.
    """
    special = pack.manifest["special_tokens"]
    assert isinstance(special, dict)
    answer = special["<｜Assistant｜>"]
    found = []
    for document in documents(pack.held_out[kind]):
        if kind == Kind.CHAT:
            places = np.flatnonzero(document == answer)
            length = int(places[-1]) + 1 if len(places) else 0
        else:
            long = len(document) >= _LEAST_DOCUMENT_TOKENS
            length = min(_PROMPT_TOKENS, len(document) // 2) if long else 0
        if length:
            found.append(document[:length].tolist())
    return found[:: max(1, len(found) // count)][:count]


def stretches(pack: Pack, kind: str, length: int, count: int) -> list[list[int]]:
    """`count` stretches of `length` tokens of a kind's held-out string, spread evenly."""
    tokens = pack.held_out[kind]
    starts = np.linspace(0, len(tokens) - length, count).astype(int)
    return [tokens[start : start + length].tolist() for start in starts]


def documents(tokens: np.ndarray) -> Iterator[np.ndarray]:
    """Cut a token string after each end of a document."""
    start = 0
    for end in np.flatnonzero(tokens == _END):
        yield tokens[start : end + 1]
        start = end + 1
