"""Numbers and words as figures and pages show them: three digits, escaped, never a false zero."""

from __future__ import annotations

import html
import math
import re
import textwrap
from collections.abc import Iterable

from workbench.spreads import says_nothing

MISSING = "—"
UNKNOWN = "not known"  # a setting or fact that one side does not tell
OF_QUESTIONS = ("accuracy", "accuracy_of_answers", "pass_at_k")
_KEY = re.compile(r"(^|, )(?:\w+\.)?(\w+)=")
AXIS_NAMES = {
    "batch_size": ("c", "requests in flight", "{} in flight"),
    "draft_length": ("d", "draft length", "draft length {}"),
    "replay_keep_tokens": ("k", "keep tokens", "{} keep tokens"),
    "data_parallel_size": ("dp", "replicas", "{} replicas"),
}
"""Axis name -> (mark in labels beside points, words, phrase with a value)."""


def number(value: float | None) -> str:
    """Three significant digits with thousands separators; an em dash for None, NaN and infinity."""
    if value is None or not math.isfinite(value):
        return MISSING
    if (isinstance(value, int) and abs(value) < 1000) or value == 0:
        return f"{value:.0f}"
    magnitude = math.floor(math.log10(abs(value)))
    if magnitude < -4:
        return f"{value:.2e}"
    rounded = round(value, 2 - magnitude)
    digits = 2 - math.floor(math.log10(abs(rounded)))  # 9.996 has become 10.0
    return f"{rounded:,.{max(0, digits)}f}"


def samples(n: float | None) -> int | None:
    """A count of samples out of a table; None where it is not told."""
    return None if n is None or n != n else int(n)


def samples_words(n: float | None) -> str:
    """`n=1,234`, or that it is not told, as with numbers of other tools."""
    known = samples(n)
    return "n not told" if known is None else f"n={known:,}"


def interval(low: float | None, high: float | None) -> str:
    """`low to high`, `at least low` where nothing bounds it above; empty without an interval."""
    shown = (number(low), number(high))
    if shown[0] == MISSING:
        return ""
    return f"at least {shown[0]}" if shown[1] == MISSING else f"{shown[0]} to {shown[1]}"


def value_text(value: object) -> str:
    """An axis or configuration value in words; missing and NaN are an em dash."""
    if value is None or value != value:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() and abs(value) < 1e6 else f"{value:.4g}"
    return str(value)


def in_order(texts: Iterable[str]) -> list[str]:
    """Numbers before words, each in its own order: `2`, `16`, `auto`."""
    return sorted(texts, key=_order)


def _order(text: str) -> tuple[bool, float, str]:
    try:
        return (False, float(text), text)
    except ValueError:
        return (True, 0.0, text)


def short(text: str, limit: int) -> str:
    """`text` in at most `limit` characters, with an ellipsis where it was cut."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def safe(text: object) -> str:
    """`text` without any mark-up that plotly or a browser would act on."""
    return html.escape(str(text), quote=False)


def wrap(text: str, width: int) -> str:
    """Escaped `text` in lines of at most `width` characters and even length, as plotly breaks."""
    lines = textwrap.wrap(text, width)
    for narrower in range(width - 1, 0, -1):
        even = textwrap.wrap(text, narrower)
        if len(even) > len(lines):
            break
        lines = even
    return "<br>".join(safe(line) for line in lines)


def axis_words(name: str) -> str:
    """What an axis is called in a sentence: `axis.draft_length` -> `draft length`."""
    bare = name.split(".", 1)[-1]
    return AXIS_NAMES[bare][1] if bare in AXIS_NAMES else bare.replace("_", " ")


def axis_phrase(name: str, value: str) -> str:
    """An axis with its value in a sentence: `draft length 5`, `16 in flight`, `1 replica`."""
    bare = name.split(".", 1)[-1]
    if bare == "data_parallel_size" and value == "1":
        return "1 replica"
    return (
        AXIS_NAMES[bare][2].format(value) if bare in AXIS_NAMES else f"{axis_words(name)} {value}"
    )


def kind_words(name: str) -> str:
    """A group of points in words: `workload.name=chat, prompt_tokens=64` by value and setting."""
    return _KEY.sub(lambda key: key[1] + _key_words(key[2]), name)


def _key_words(key: str) -> str:
    return "" if key == "name" else f"{axis_words(key)} "


def axis_mark(name: str) -> str:
    """The mark that stands for an axis beside a point: `axis.draft_length` -> `d`."""
    bare = name.split(".", 1)[-1]
    return AXIS_NAMES[bare][0] if bare in AXIS_NAMES else bare.replace("_", " ") + " "


def repeats_words(count: int) -> str:
    """`mean of 3 repeats`; empty for a single one."""
    return f"mean of {count} repeats" if count > 1 else ""


def span_words(
    low: float | None, high: float | None, repeats: int, metric: str | None = None
) -> str:
    """`95 to 105 within run`, or `... over 3 repeats`; empty where there is no interval.

    An interval over repeats that says nothing is told as that.
    """
    if says_nothing(low, high, repeats):
        return f"{repeats} repeats: too few to say"
    span = interval(low, high)
    return f"{span} {basis_phrase(repeats, metric)}" if span else ""


def basis_phrase(repeats: int, metric: str | None = None) -> str:
    """What an interval covers: `within run`, `over 3 repeats`; of an eval's shares the questions.

    Repeats ask the same questions, so how they differ says nothing of others.
    """
    if metric in OF_QUESTIONS:
        return "over questions"
    return "within run" if repeats <= 1 else f"over {repeats} repeats"


def percent(share: float | None) -> str:
    """A chance as a reader takes it: `< 1 %`, `42 %`, `> 99 %`; an em dash where it is unknown."""
    if share is None or not math.isfinite(share):
        return MISSING
    if 0 < share < 0.01:
        return "< 1 %"
    return "> 99 %" if 0.99 < share < 1 else f"{100 * share:.0f} %"


def plural(count: int, noun: str) -> str:
    """`1 trial`, `2 trials`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
