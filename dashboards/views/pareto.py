"""Pareto: which configuration is best for my target?"""

from __future__ import annotations

from dataclasses import dataclass
from html import unescape

import pandas as pd
import streamlit as st

import workbench as wb
from dashboards import address, controls, fronts, markup, parts, reading, trial_view
from workbench.figures import Look, headline, number, pareto, plural, target_marks

MAX_ROWS = 200
TABLE = "pareto.table"
Kept = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, kw_only=True)
class View:
    """What the sidebar asks for."""

    x: str
    y: str
    by: str | None
    kept: dict[str, list[str]]  # axis column -> values in words


def main() -> None:
    """The front of one run; a click on a point opens its trial beside the figure."""
    with st.sidebar:
        summary = parts.chosen_run()
    if summary is None:
        parts.empty_store()
        return
    points = reading.reader(summary.run_id).points()
    with st.sidebar:
        view = _controls(points)
    parts.live(lambda: _body(summary.run_id, view), summary.run_id)


def _controls(points: pd.DataFrame) -> View | None:
    leads = headline(points)
    x = controls.metric(points, "Across", "x", leads.x)
    y = controls.metric(points, "Up", "y", leads.y)
    if x is None or y is None:
        return None
    groups = fronts.groupings(points)
    by = address.choose(
        "Colour and front by",
        ["", *groups],
        "group",
        default=fronts.default_grouping(points) or "",
        words=fronts.group_words,
    )
    return View(x=x, y=y, by=by or None, kept=controls.filters(points))


def _body(run_id: str, view: View | None) -> None:
    reader = reading.reader(run_id)
    summary = reader.refresh()
    every = reader.points()
    points, found = (every, None) if view is None else _found(run_id, len(every), view)
    parts.html(_heading(summary))
    parts.banners(summary)
    if view is None or found is None:
        parts.html(markup.headline(fronts.sentence(every, None, summary)))
        trial_view.failures(reader.trials(), summary)
        return
    chosen = address.parameter("trial")
    if chosen is not None and not reader.holds(chosen):
        st.warning("The trial of this address is not stored in this run.")
    left, right = st.columns([2.2, 1], gap="medium")
    with left:
        _figure(points, found, view, summary)
        hidden = len(every) - len(points)
        if hidden:
            parts.html(markup.note(f"{plural(hidden, 'point')} hidden by the filters at the left."))
    with right:
        trial_view.drawer(reader, chosen, (view.y, view.x))
    _ranking(points, found, view)


def _found(run_id: str, count: int, view: View) -> tuple[pd.DataFrame, wb.Front | None]:
    kept = tuple((name, tuple(values)) for name, values in view.kept.items())
    state = (count, len(reading.reader(run_id).run.trial_ids()))
    return _front(reading.store_path(), run_id, state, (view.x, view.y, view.by, kept))


@st.cache_resource(show_spinner=False, max_entries=32)
def _front(
    store: str, run_id: str, state: tuple[int, int], asked: tuple[str, str, str | None, Kept]
) -> tuple[pd.DataFrame, wb.Front | None]:
    """The points that the filters keep and their front; bands and chances are drawn once.

    `state` tells what was stored, so that a run that goes on is not shown as it was.
    """
    del store, state
    x, y, by, kept = asked
    reader = reading.reader(run_id)
    points = controls.filtered(reader.points(), dict(kept))
    return points, fronts.front(points, x, y, by, reader.run)


def _heading(summary: wb.RunSummary) -> str:
    link = markup.anchor(summary.run_id, address.link("run", run=summary.run_id))
    pieces = [link, markup.pill(summary.state), markup.plain(summary.question)]
    return f'<div class="wb-eyebrow">{"".join(f"<span>{piece}</span>" for piece in pieces)}</div>'


def _figure(points: pd.DataFrame, found: wb.Front, view: View, summary: wb.RunSummary) -> None:
    look = Look(
        subtitle=fronts.subtitle(summary, points),
        dark=parts.is_dark(),
        height=440,
        selected=address.parameter("trial"),
    )
    drawn = pareto(points, found, by=view.by, look=look)
    parts.figure(
        drawn, points, "pareto", on_click=_clicked, alt=unescape(drawn.layout.meta["title"])
    )


def _clicked() -> None:
    """Put the clicked point's trial into the address; a click beside every point closes it."""
    address.remember("trial", parts.clicked("pareto"))


def _ranking(points: pd.DataFrame, found: wb.Front, view: View) -> None:
    spec_x, spec_y = wb.METRICS[view.x], wb.METRICS[view.y]
    at_least = "at least" if found.x.direction == "max" else "at most"
    parts.html(markup.section(f"Ranked by {spec_y.label.lower()}"))
    target = _target_slider(points, f"{spec_x.label} {at_least} ({spec_x.unit})", view.x)
    rows = fronts.ranked(points, found, target)
    if target is not None:
        parts.html("".join(map(markup.note, fronts.attained(found, target))))
    told = fronts.bases(rows, (view.y, view.x))
    among = f" Intervals: 95 %, {told[0]}." if len(told) == 1 else ""
    among += " Chances are among the points of one colour." if view.by else ""
    parts.html(_ranking_note(len(rows), len(points), target, among))
    shown = rows.head(MAX_ROWS)
    if not shown.empty:
        _table(shown, points, view)


def _target_slider(points: pd.DataFrame, label: str, metric: str) -> float | None:
    """The target that x must reach; None at the slider's first mark, which asks for nothing."""
    marks = target_marks(points, metric)
    if len(marks) < 2:
        return None
    asked = _target()
    options = [None, *sorted({*marks, *([asked] if asked is not None else [])})]
    target = st.select_slider(
        label,
        options,
        value=asked,
        format_func=lambda mark: "any" if mark is None else number(mark),
        key="pareto.target",
        width=520,
    )
    address.remember("target", None if target is None else f"{target:g}")
    return target


def _target() -> float | None:
    """The target of the address; None where it gives no number."""
    try:
        return max(0.0, float(address.parameter("target") or ""))
    except ValueError:
        return None


def _ranking_note(count: int, total: int, target: float | None, among: str) -> str:
    reach = "" if target is None else " that meet the target"
    cut = f", the first {MAX_ROWS} shown" if count > MAX_ROWS else ""
    return markup.note(
        f"{plural(count, 'valid point')} of {total:,}{reach}{cut}. Select a row to see its trial."
        + among
    )


def _table(rows: pd.DataFrame, points: pd.DataFrame, view: View) -> None:
    chance = "P(on front)" if address.parameter("target") is None else "P(best at the target)"
    shown = fronts.ranking_table(rows, points, (view.y, view.x), chance)
    st.session_state["pareto.rows"] = rows["trial_id"].tolist()
    digits = dict.fromkeys(shown.select_dtypes("float"), number)
    st.dataframe(
        shown.style.format(digits),  # the cells stay numbers, and sort as such
        key=TABLE,
        on_select=_row_selected,
        selection_mode="single-row",
        hide_index=True,
        height="auto" if len(shown) < 12 else 430,
    )


def _row_selected() -> None:
    chosen = st.session_state[TABLE].selection.rows
    trials = st.session_state.get("pareto.rows", [])
    known = chosen and chosen[0] < len(trials)
    address.remember("trial", trials[chosen[0]] if known else None)


if __name__ == "__main__":
    main()
