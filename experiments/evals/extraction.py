r"""From what a model wrote to its answer, by rules that are tried in the order listed here.

1. `boxed`: the last `\boxed{...}` or `\fbox{...}` whose braces close, inner braces included.
2. `marked`: what follows the last `#### `, or the last "answer is", "answer:", "answer =".
3. What the kind allows where neither is there, or where it holds no answer of the kind:
   integer and number: the `last` number of the text; a choice: the last letter that is `alone` in
   its line ("C", "(C)", "**C.**"), or the `words` of just one choice; exact: the `whole` text
   where it is one line of at most 200 characters; JSON: the last `fenced` block, else the last
   value `found` in the text; code: the last `fenced` block, else one that is `unclosed`, else the
   `whole` text where it holds Python.

Where no rule finds an answer, there is none: that is counted apart and never taken for a wrong one.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from experiments.evals.letters import choice_held, letter_alone, letter_of
from experiments.evals.numerals import number, numbers, shown
from experiments.evals.questions import AnswerKind
from experiments.evals.short_answers import canonical

MOST_EXACT = 200
NEED_THE_END = frozenset({"last", "alone", "words", "whole", "found", "unclosed"})
"""Rules that take what an output ends with for its answer: of one that was cut off, none holds."""
_BOXES = re.compile(r"\\(?:boxed|fbox)\s*\{")
_HASHES = re.compile(r"####[ \t]*(\S[^\n]*)")
_MARKS = re.compile(
    r"\b(?:answers?|correct (?:option|choice))[*_`\"']*\s*"
    r"(?:(?:is|are|would be|=)\s*[*_]*:?|:)[*_]*\s*",
    re.IGNORECASE,
)
_FENCES = re.compile(r"```[ \t]*([\w+-]*)[^\n]*\n(.*?)```", re.DOTALL)
_OPEN_FENCE = re.compile(r"```[ \t]*(?:[Pp]ython3?|py)?[ \t]*\n(.+)\Z", re.DOTALL)
_REASON = re.compile(r"[,;.]\s|\b(?:because|since|as)\b")
_LOOKS_LIKE_CODE = re.compile(r"^\s*(?:def|from|import|class|return|for|if)\b", re.MULTILINE)


@dataclass(frozen=True)
class Extraction:
    """What an output holds as its answer, and by which rule; `value` None: `rule` says why."""

    value: str | None
    rule: str


def extract(kind: AnswerKind, text: str, choices: tuple[str, ...] = ()) -> Extraction:
    """The answer in an output, spelled as `experiments.evals.rules` compares it.

    Of a choice its letter among `choices`, in the order in which they were asked.
    """
    if not text.strip():
        return Extraction(None, "the output is empty")
    if kind is AnswerKind.JSON:
        return _json(text)
    if kind is AnswerKind.CODE:
        return _code(text)
    for rule, candidate in (("boxed", boxed(text)), ("marked", marked(text))):
        value = _read(kind, candidate, choices) if candidate is not None else None
        if value is not None:
            return Extraction(value, rule)
    if kind is AnswerKind.CHOICE:
        return _choice(text, choices)
    return _exact(text) if kind is AnswerKind.EXACT else _last_number(text)


def _read(kind: AnswerKind, text: str, choices: tuple[str, ...]) -> str | None:
    if kind is AnswerKind.CHOICE:
        return letter_of(text, choices)
    return text.strip() or None if kind is AnswerKind.EXACT else _a_number(text)


def boxed(text: str) -> str | None:
    """The content of the last box whose braces close; None where there is none."""
    starts = [match.end() for match in _BOXES.finditer(text)]
    return next((found for at in reversed(starts) if (found := _braced(text, at))), None)


def _braced(text: str, start: int) -> str | None:
    depth, escaped = 1, False
    for at in range(start, len(text)):
        character = text[at]
        depth += 0 if escaped else {"{": 1, "}": -1}.get(character, 0)
        escaped = character == "\\" and not escaped
        if not depth:
            return text[start:at].strip() or None
    return None


def marked(text: str) -> str | None:
    """The rest of the line after the last `####` or "answer is"; None where there is none."""
    found = [match.start(1) for match in _HASHES.finditer(text)]
    found += [match.end() for match in _MARKS.finditer(text)]
    line = text[max(found) :].split("\n", 1)[0].strip() if found else ""
    return line or None


def _a_number(text: str) -> str | None:
    """The number that the text is; else the first in it, as in "42 dollars"."""
    whole = number(text)
    if whole is not None:
        return shown(whole)
    found = numbers(_right_side(text))
    return shown(found[0]) if found else None


def _right_side(text: str) -> str:
    """What the equation comes to with which a text begins; reasons behind it are left out."""
    return _REASON.split(text, maxsplit=1)[0].rpartition("=")[2]


def _last_number(text: str) -> Extraction:
    found = numbers(text)
    if not found:
        return Extraction(None, "there is no number in the output")
    return Extraction(shown(found[-1]), "last")


def _choice(text: str, choices: tuple[str, ...]) -> Extraction:
    fallbacks = (("alone", letter_alone), ("words", choice_held))
    for rule, read in fallbacks:
        value = read(text, choices)
        if value is not None:
            return Extraction(value, rule)
    return Extraction(None, "there is no letter, and no choice in words, in the output")


def _exact(text: str) -> Extraction:
    line = text.strip()
    if "\n" in line or len(line) > MOST_EXACT:
        return Extraction(None, "no answer is marked, and the output is no single line")
    return Extraction(line, "whole")


def _json(text: str) -> Extraction:
    fenced = [body for language, body in _FENCES.findall(text) if language in ("", "json")]
    for body in reversed(fenced):
        value = _parsed(body.strip())
        if value is not None:
            return Extraction(value, "fenced")
    value = _last_value(text)
    if value is None:
        return Extraction(None, "there is no JSON value in the output")
    return Extraction(value, "found")


def _parsed(text: str) -> str | None:
    try:
        return canonical(json.loads(text))
    except (ValueError, RecursionError):
        return None


def _last_value(text: str) -> str | None:
    """The last object or array that stands in the text, not one inside of another."""
    decoder, at, last = json.JSONDecoder(), 0, None
    while (opening := re.compile(r"[{\[]").search(text, at)) is not None:
        try:
            value, at = decoder.raw_decode(text, opening.start())
            last = canonical(value)
        except (ValueError, RecursionError):
            at = opening.end()
    return last if last is not None else _parsed(text.strip())


def _code(text: str) -> Extraction:
    fenced = [body for language, body in _FENCES.findall(text) if language in _PYTHON]
    if fenced:
        return Extraction(fenced[-1], "fenced")
    unclosed = _OPEN_FENCE.search(text)
    if unclosed is not None:
        return Extraction(unclosed[1], "unclosed")
    if _LOOKS_LIKE_CODE.search(text):
        return Extraction(text, "whole")
    return Extraction(None, "there is no Python in the output")


_PYTHON = ("", "python", "python3", "py", "Python")
