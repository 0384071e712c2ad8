"""The letter of a choice, in the words that models put around it."""

from __future__ import annotations

import re

from experiments.evals.numerals import plain
from experiments.evals.questions import LETTERS
from experiments.evals.short_answers import normalised

_AROUND = r"\s*_(\[\"'`$"
_LETTER = re.compile(
    rf"[{_AROUND}]*(?:(?:option|choice|letter)\s+)?[{_AROUND}]*([A-Za-z])(?![\w'’])([\s*_)\]\"'`$.:,]*)",
    re.IGNORECASE,
)


def letter_of(text: str, choices: tuple[str, ...]) -> str | None:
    """The letter with which a text begins, or that of the choice that it is in words.

    With more behind it, the letter bears a mark ("c) ", "A. ") or is a capital that is no word:
    "A bush" and "I think" name no choice.
    """
    said = plain(text)
    found = _LETTER.match(said)
    if found is None or not _stands(found, said[found.end() :], len(choices)):
        return _by_words(text, choices)
    return found[1].upper()


def letter_alone(text: str, choices: tuple[str, ...]) -> str | None:
    """The letter in the last line that is nothing but a letter."""
    for line in reversed(text.strip().split("\n")):
        found = _LETTER.fullmatch(plain(line))
        if found is not None and found[1].upper() in LETTERS[: len(choices)]:
            return found[1].upper()
    return None


def choice_held(text: str, choices: tuple[str, ...]) -> str | None:
    """The letter of the one choice whose words the text holds; None where it holds several."""
    said = f" {normalised(text)} "
    held = [at for at, choice in enumerate(choices) if f" {normalised(choice)} " in said]
    return LETTERS[held[0]] if len(held) == 1 else None


def _stands(found: re.Match[str], rest: str, count: int) -> bool:
    letter, after = found[1], found[2]
    if letter.upper() not in LETTERS[:count]:
        return False
    if not rest:
        return True
    marks = ").:]*," if letter.isupper() else ").:]"
    return any(mark in after for mark in marks) or (letter.isupper() and letter not in "AI")


def _by_words(text: str, choices: tuple[str, ...]) -> str | None:
    wanted = normalised(text)
    found = [at for at, choice in enumerate(choices) if normalised(choice) == wanted]
    return LETTERS[found[0]] if len(found) == 1 else None
