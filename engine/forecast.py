"""How long sequences will become, so that no more are admitted than will fit together."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.sequence import Sequence

_REMEMBERED = 256


class LengthForecast:
    """The final lengths of sequences, from what those that ended lately took of their allowance.

    A sequence that nothing can stop early takes all of it, for certain; until one that might
    have stopped has ended, so do the others.
    """

    def __init__(self) -> None:
        self._shares: deque[float] = deque(maxlen=_REMEMBERED)
        self._share: float | None = None  # their mean

    def record(self, sequence: Sequence) -> None:
        """Learn from a sequence that ended by itself."""
        if _can_stop(sequence):
            self._shares.append(sequence.output_tokens / _allowance(sequence))
            self._share = sum(self._shares) / len(self._shares)

    def final_tokens(self, sequence: Sequence) -> int:
        """Its length when it ends, at least one token more than it may have now."""
        if self._share is None or not _can_stop(sequence):
            return sequence.last_length
        expected = sequence.prompt_tokens + math.ceil(self._share * _allowance(sequence))
        return min(max(expected, sequence.most_tokens + 1), sequence.last_length)


def _can_stop(sequence: Sequence) -> bool:
    sampling = sequence.request.sampling
    return not sampling.ignore_eos or bool(sampling.stop_token_ids or sampling.stop_strings)


def _allowance(sequence: Sequence) -> int:
    return sequence.last_length - sequence.prompt_tokens
