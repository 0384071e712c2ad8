"""A piece of the corpus, and how it is cleaned."""

from __future__ import annotations

import re
from dataclasses import dataclass

from experiments.training.sources import Kind

_LONGEST_LINE_CHARS = 2000
_COMMON_WORD_LIST = "the of and to a in is that for it as be this or are with"
_COMMON_WORDS = frozenset(_COMMON_WORD_LIST.split())


@dataclass(frozen=True)
class Document:
    """One text. `origin` names its source file, which goes to one split whole."""

    kind: Kind
    package: str
    origin: str
    text: str

    @property
    def byte_count(self) -> int:
        """Length of the UTF-8 text."""
        return len(self.text.encode())


def clean(kind: Kind, text: str) -> str | None:
    """Return the text with unix newlines and no trailing blanks, or None if it is no use.

    Refused: control characters, very short texts, very long lines (JSON excepted: it is compact by
    style), English without English words.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    text = re.sub(r"[ \t\f\v]+$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\n{4,}", "\n\n\n", text).strip("\n")
    if re.search(r"[\x00-\x08\x0e-\x1f\x7f\ud800-\udfff\ufffd]", text):
        return None
    if len(text) < (40 if kind in (Kind.JSON, Kind.CHAT) else 400):
        return None
    if kind is Kind.ENGLISH and not _is_english(text):
        return None
    if kind is not Kind.JSON and max(map(len, text.split("\n"))) > _LONGEST_LINE_CHARS:
        return None if kind is Kind.CODE else _without_long_lines(text)
    return text + "\n" if kind in (Kind.ENGLISH, Kind.CODE) else text


def _is_english(text: str) -> bool:
    words = re.findall(r"[A-Za-z]+", text)
    letters = sum(map(len, words))
    common = sum(word.lower() in _COMMON_WORDS for word in words)
    return letters > 0.5 * len(text) and common > 0.10 * len(words)


def _without_long_lines(text: str) -> str:
    lines = text.split("\n")
    return "\n".join(line for line in lines if len(line) <= _LONGEST_LINE_CHARS) + "\n"
