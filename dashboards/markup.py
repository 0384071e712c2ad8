"""Small pieces of HTML. Whatever comes from results is escaped here, once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

import workbench as wb
from workbench.figures import (
    MISSING,
    Best,
    number,
    plural,
    repeats_words,
    samples_words,
    span_words,
)

STATE_TONES = {
    "complete": "good",
    "ok": "good",
    "passed": "good",
    "running": "busy",
    "partial": "warn",
    "invalid": "warn",
    "interrupted": "bad",
    "failed": "bad",
    "cancelled": "warn",
    "skipped": "calm",
    "not judged": "calm",
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One table cell: ready HTML, its class and what a pointer or screen reader is told."""

    html: str
    kind: str = ""
    title: str = ""


def text(value: object, kind: str = "", title: str = "") -> Cell:
    """A cell of plain text."""
    return Cell(html=escape(str(value)), kind=kind, title=title)


def figure_cell(value: float | None, reason: str = "") -> Cell:
    """A cell with a number; an em dash that carries its reason when there is none."""
    shown = number(value)
    return Cell(html=shown, kind="num", title=reason if shown == MISSING else "")


def plain(value: object) -> str:
    """Text as HTML that shows it literally."""
    return escape(str(value))


def anchor(label: str, target: str) -> str:
    """A link in the same window."""
    return f'<a href="{escape(target)}" target="_self">{escape(label)}</a>'


def pill(state: str) -> str:
    """A state as a small coloured mark that also says it in words."""
    return f'<span class="wb-pill {STATE_TONES.get(state, "calm")}">{escape(state)}</span>'


def pill_of(words: str, like: str) -> str:
    """A mark that says `words` in the colour of the state `like`."""
    return f'<span class="wb-pill {STATE_TONES.get(like, "calm")}">{escape(words)}</span>'


def headline(sentence: str, above: Iterable[str] = ()) -> str:
    """The page's first sentence with a line of ready HTML pieces above it."""
    pieces = "".join(f"<span>{piece}</span>" for piece in above)
    eyebrow = f'<div class="wb-eyebrow">{pieces}</div>' if pieces else ""
    return f'{eyebrow}<h1 class="wb-headline">{escape(sentence)}</h1>'


def figure_head(title: str, subtitle: str, height: int, chart: str) -> str:
    """Title and subtitle (HTML) of the figure `chart`, whose own, `height` pixels, is cut."""
    cut = (
        f".st-key-{chart} {{ margin-top: -{height}px; "
        f"clip-path: inset({height}px 0 0 0); }} .st-key-{chart} .modebar-container "
        f"{{ top: {height}px !important; }}"
    )
    return (
        f'<style>{cut}</style><h2 class="wb-figure-title">{title}</h2>'
        f'<p class="wb-note">{subtitle}</p>'
    )


def section(title: str) -> str:
    """A heading inside a page."""
    return f'<h2 class="wb-section">{escape(title)}</h2>'


def note(sentence: str) -> str:
    """A sentence in small type."""
    return f'<p class="wb-note">{escape(sentence)}</p>'


def banner(labels: Sequence[str]) -> str:
    """What a reader must know before any number: the labels of the run."""
    spans = "".join(f"<span>{escape(label)}</span>" for label in labels)
    return f'<p class="wb-banner" role="note"><b>Mind:</b>{spans}</p>'


def tile(label: str, found: Best, target: str | None) -> str:
    """One headline number with its interval, its sample size and the cell that gave it."""
    if found.value is None:
        body = f'<div class="value">{MISSING}</div><div class="range">{escape(found.reason)}</div>'
    else:
        span = span_words(found.low, found.high, found.repeats, found.spec.name)
        told = span or ", ".join(filter(None, ["no interval", repeats_words(found.repeats)]))
        ranged = f"{told}, {samples_words(found.n)}"
        body = (
            f'<div class="value">{number(found.value)} <small>{escape(found.spec.unit)}</small>'
            f'</div><div class="range">{ranged}</div><div class="where">{escape(found.where)}</div>'
        )
    inside = f'<div class="label">{escape(label)}</div>{body}'
    if target is None:
        return f'<div class="wb-tile">{inside}</div>'
    return f'<a class="wb-tile" href="{escape(target)}" target="_self">{inside}</a>'


def tiles(items: Iterable[str]) -> str:
    """Tiles side by side, wrapping on a narrow page."""
    return f'<div class="wb-tiles">{"".join(items)}</div>'


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    marks: Sequence[str] = (),
    *,
    stacked: bool = False,
) -> str:
    """A table that scrolls sideways inside itself; `marks` are the classes of its rows.

    On a phone each row of a `stacked` one is a card, with the head beside each number.
    """
    rows = list(rows)
    kinds = [cell.kind for cell in rows[0]] if rows else [""] * len(heads)
    head = "".join(
        f'<th scope="col" class="{"num" if "num" in kind else ""}">{escape(name)}</th>'
        for name, kind in zip(heads, kinds, strict=True)
    )
    body = "".join(
        f'<tr class="{escape(mark)}">{_cells(heads, row)}</tr>'
        for row, mark in zip(rows, marks or _endless(), strict=False)
    )
    look = "wb-table stacked" if stacked else "wb-table"
    return (
        f'<div class="wb-scroll"><table class="{look}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def kinds(names: Sequence[str], blocks: Iterable[str]) -> str:
    """Blocks of ready HTML, each under the kind of points that it tells of."""
    return "".join(
        f'<div class="wb-kind">{escape(name)}</div>{block}'
        for name, block in zip(names, blocks, strict=True)
    )


def progress(counts: dict[str, int], planned: int) -> str:
    """A bar of trial states; the part not yet run stays empty."""
    whole = max(planned, sum(counts.values()), 1)
    parts = "".join(
        f'<i class="{escape(state)}" style="width:{100 * count / whole:.2f}%"></i>'
        for state, count in counts.items()
        if count
    )
    told = wb.counts_words(counts) or "none yet"
    spoken = f"{sum(counts.values()):,} of {plural(planned, 'trial')} stored: {told}"
    return (
        f'<div class="wb-progress" role="img" aria-label="{escape(spoken)}">{parts}</div>'
        f'<p class="wb-note">{escape(spoken)}</p>'
    )


def _cells(heads: Sequence[str], row: Sequence[Cell]) -> str:
    return "".join(_cell(head, cell) for head, cell in zip(heads, row, strict=True))


def _cell(head: str, cell: Cell) -> str:
    title = f' title="{escape(cell.title)}"' if cell.title else ""
    named = f' data-head="{escape(head)}"' if "num" in cell.kind else ""
    return f'<td class="{escape(cell.kind)}"{named}{title}>{cell.html}</td>'


def _endless() -> Iterable[str]:
    while True:
        yield ""
