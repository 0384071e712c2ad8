"""Texts that end a sequence, looked for in its bytes as tokens come."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class StopStrings:
    """The stop strings of one sequence, and as much of its text as they may still need.

    A string may begin in one token and end in another, and may split a character: bytes are
    compared, as `bytes_of` gives them for a token id.
    """

    def __init__(self, strings: Sequence[str], bytes_of: Callable[[int], bytes]) -> None:
        self._wanted = [string.encode() for string in strings]
        self._bytes_of = bytes_of
        self._kept = max(len(wanted) for wanted in self._wanted) - 1
        self._tail = b""

    def ends_with(self, token_id: int) -> bool:
        """Take in the next token; whether a stop string ends in it. Call once a token."""
        before = len(self._tail)
        text = self._tail + self._bytes_of(token_id)
        self._tail = text[max(0, len(text) - self._kept) :]
        return any(wanted in text[max(0, before + 1 - len(wanted)) :] for wanted in self._wanted)
