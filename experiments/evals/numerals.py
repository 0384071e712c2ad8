r"""Numbers in the spellings that answers have, as exact fractions.

Read: digits of any script, `-`, `+` and the Unicode minus; a decimal point; thousands in groups of
three behind `,`, `_`, a space or a thin space; `a/b`, `\frac{a}{b}` and one-character fractions;
powers as `2e3`. `%`, a currency sign in front, `\$` and LaTeX spaces are left out. A comma is never
a decimal point, and `1,2` is two numbers.
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction

MOST_DIGITS = 400
"""Digits from which a numeral is not read: no answer has so many."""

_DASHES = dict.fromkeys(map(ord, "\u2212\u2010\u2011\u2012\u2013\ufe63\uff0d"), "-")
_SPACES = dict.fromkeys(map(ord, "\u00a0\u2007\u2009\u202f"), "\u2009")
_LATEX = (
    ("\\left", ""), ("\\right", ""), ("\\dfrac", "\\frac"), ("\\tfrac", "\\frac"),
    ("\\,", "\u2009"), ("\\!", ""), ("\\;", "\u2009"), ("{,}", ","), ("\\%", "%"), ("\\$", "$"),
)  # fmt: skip
_WHOLE = r"(?:\d{1,3}(?:[,_\u2009 ]\d{3})+(?!\d)|\d+)"
_PLAIN = rf"(?:{_WHOLE}(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d{{1,3}})?"
_FRAC = r"\\frac\s*\{\s*([-+]?\d+)\s*\}\s*\{\s*(\d+)\s*\}"
_SIGN = r"(?P<sign>(?<![\w.)])[-+]|(?<![\w.)])(?<![\w)]\s)[-+]\s)"
_NUMBER = re.compile(rf"{_SIGN}?[$€£]?(?:{_FRAC}|(?P<a>{_PLAIN})(?:\s?/\s?(?P<b>\d+))?)")
_WRAPPED = re.compile(r"[\s$*`'\"()\[\].,;:]*")
_NOT_LETTERS = re.compile(r"\\(?:text|mathrm|mathbf)\s*\{([^{}]*)\}")


def plain(text: str) -> str:
    r"""The text with one spelling of minus, thin space and fraction; `\text{x}` becomes x."""
    for old, new in _LATEX:
        text = text.replace(old, new)
    text = _NOT_LETTERS.sub(r"\1", text.translate(_SPACES).translate(_DASHES))
    kept = "".join(c if c == "\u2009" else _one_spelling(c) for c in text)
    return kept.replace("\u2044", "/")


def _one_spelling(character: str) -> str:
    """Digits of any script as ASCII, a fraction in one character as `a/b`."""
    spelled = unicodedata.normalize("NFKC", character)
    if "\u2044" in spelled:
        return f" {spelled}"
    return "".join(str(unicodedata.digit(c)) if c.isdigit() else c for c in spelled)


def numbers(text: str) -> list[Fraction]:
    """Every number in the text, in order."""
    found = (_value(match) for match in _NUMBER.finditer(plain(text)))
    return [value for value in found if value is not None]


def number(text: str) -> Fraction | None:
    """The one number that the text is, whatever marks are around it; None where it is more."""
    cleaned = plain(text).strip().removesuffix("%").rstrip("\\ ")
    match = _NUMBER.search(cleaned)
    if match is None:
        return None
    around = cleaned[: match.start()] + cleaned[match.end() :]
    return _value(match) if _WRAPPED.fullmatch(around.removesuffix("%")) else None


def shown(value: Fraction) -> str:
    """`3`, or `1/3`."""
    return str(value)


def _value(match: re.Match[str]) -> Fraction | None:
    if len(match[0]) > MOST_DIGITS:
        return None
    top, bottom = match[2], match[3]
    if top is not None:
        value = _ratio(Fraction(int(top)), bottom)
    else:
        value = _ratio(Fraction(re.sub(r"[,_\u2009 ]", "", match["a"])), match["b"])
    negative = (match["sign"] or "").startswith("-")
    return -value if value is not None and negative else value


def _ratio(top: Fraction, bottom: str | None) -> Fraction | None:
    if bottom is None:
        return top
    return top / int(bottom) if int(bottom) else None
