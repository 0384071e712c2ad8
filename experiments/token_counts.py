"""How many tokens each piece of a text stream brought, from the best source that there is."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from experiments.records import ChunkKind, TokenSource


class TextTokenizer(Protocol):
    """What the client knows of the server's tokenizer."""

    def encode(self, text: str) -> list[int]:
        """Ids of the text alone."""
        ...

    def ends(self, text: str) -> list[int]:
        """Where each token of the text ends, in characters from its start, ascending."""
        ...


@dataclass(frozen=True, kw_only=True)
class Piece:
    """What one event of a stream says of the answer. None: it does not say."""

    text: str = ""
    kind: ChunkKind = ChunkKind.CONTENT
    token_ids: tuple[int, ...] | None = None
    logprobs: int | None = None  # tokens that the event gives a log-probability of
    usage: int | None = None  # output tokens of the whole answer so far
    arrival: bool = True
    """False for an event that is about the answer, not of it: usage after the last token."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Tokens of each piece, in order; 0 where a piece brought none."""

    tokens: tuple[int, ...]
    source: TokenSource
    retokenised: int | None  # tokens of the joined text under the client's tokenizer


def count_tokens(
    pieces: Sequence[Piece], *, total: int | None, tokenizer: TextTokenizer | None
) -> Counts:
    """Counts of a whole answer; `total` is what the server says of it in the end, if it does.

    Best first: the growth of usage where every piece carries it, token ids, log-probabilities,
    the joined text tokenised once (a token belongs to the piece that completes it), one a
    piece. The last two only say where tokens came: how many there are is `total`'s to say,
    which is spread over the pieces in their proportion.
    """
    ends = None if tokenizer is None else tokenizer.ends("".join(p.text for p in pieces))
    retokenised = None if ends is None else len(ends)

    def counts(tokens: Sequence[int], source: TokenSource) -> Counts:
        return Counts(tokens=tuple(tokens), source=source, retokenised=retokenised)

    told = _by_usage(pieces)
    if told is not None:
        return counts(told, TokenSource.USAGE)
    for source, of in ((TokenSource.TOKEN_IDS, _ids), (TokenSource.LOGPROBS, _logprobs)):
        found = [of(piece) for piece in pieces]
        if any(found) and all(n for n, p in zip(found, pieces, strict=True) if p.text):
            return counts([n or 0 for n in found], source)
    if ends is not None:
        return counts(_spread(_by_text(pieces, ends), total), TokenSource.RETOKENISED)
    return counts(_spread([int(bool(p.text)) for p in pieces], total), TokenSource.ASSUMED)


def _ids(piece: Piece) -> int | None:
    return None if piece.token_ids is None else len(piece.token_ids)


def _logprobs(piece: Piece) -> int | None:
    return piece.logprobs


def _by_usage(pieces: Sequence[Piece]) -> list[int] | None:
    """None unless every piece of text carries usage and it never falls.

    An empty piece whose usage grew is an arrival: a parser held its text back. What usage grows
    by after the last arrival belongs to that arrival.
    """
    if not any(p.usage for p in pieces) or any(p.usage is None for p in pieces if p.text):
        return None
    grown: list[int] = []
    before = 0
    for piece in pieces:
        now = before if piece.usage is None else piece.usage
        grown.append(now - before)
        before = now
    if min(grown) < 0:
        return None
    found = [n if piece.arrival else 0 for n, piece in zip(grown, pieces, strict=True)]
    bearing = [i for i, n in enumerate(found) if n]
    if not bearing:
        return None
    found[bearing[-1]] += sum(grown) - sum(found)
    return found


def _by_text(pieces: Sequence[Piece], ends: Sequence[int]) -> list[int]:
    """Tokens that end inside each piece; characters cut in two leave theirs to the later one."""
    reached = [
        bisect.bisect_right(ends, at) for at in itertools.accumulate(len(p.text) for p in pieces)
    ]
    return [now - before for before, now in itertools.pairwise([0, *reached])]


def _spread(weights: Sequence[int], total: int | None) -> list[int]:
    """`total` in proportion to the weights, whole numbers; the weights where it is not known."""
    whole = sum(weights)
    if total is None or not whole:
        return list(weights)
    marks = [round(total * part / whole) for part in itertools.accumulate(weights, initial=0)]
    return [now - before for before, now in itertools.pairwise(marks)]
