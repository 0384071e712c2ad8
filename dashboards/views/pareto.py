"""Pareto: which configuration is best for my target?"""

from __future__ import annotations

from dataclasses import dataclass
from html import unescape

import pandas as pd
import streamlit as st

import workbench as wb
from dashboards import address, controls, fronts, markup, parts, reading, trial_view
from workbench.figures import MISSING, Look, headline, number, pareto, plural, target_marks

MAX_ROWS = 200
TABLE = "pareto.table"
Kept = tuple[tuple[str, tuple[str, ...]], ...]
Asked = tuple[str, str, str | None, Kept]


@dataclass(frozen=True, kw_only=True)
class View:
    """What the sidebar asks for."""

    x: str
    y: str
    by: str | None
    kept: dict[str, list[str]]  # axis column -> values in words
    beside: tuple[str, ...] = ()  # runs on the same picture


def main() -> None:
    """The front of one run; a click on a point opens its trial beside the figure."""
    summary = parts.opened()
    if summary is None:
        return
    with st.sidebar:
        beside = _beside(summary.run_id)
        view = _controls(_points((summary.run_id, *beside)), beside)
    parts.live(lambda: _body(summary.run_id, view), summary.run_id)


def _beside(run_id: str) -> tuple[str, ...]:
    """Other runs, imported ones too, whose points are drawn on the same picture."""
    others = {run.run_id: run for run in reading.summaries() if run.run_id != run_id}
    asked = [name for name in (address.parameter("with") or "").split(",") if name in others]
    picked = st.multiselect(
        "Beside it", list(others), default=asked, key=f"pareto.with.{run_id}", placeholder="none",
        format_func=lambda name: parts.run_words(others[name]),
    )  # fmt: skip
    address.remember("with", ",".join(picked) or None)
    return tuple(picked)


def _points(run_ids: tuple[str, ...]) -> pd.DataFrame:
    """Of one run its points, of several all of them in one table."""
    if len(run_ids) == 1:
        return reading.reader(run_ids[0]).points()
    counts = tuple(len(reading.reader(name).run.trial_ids()) for name in run_ids)
    return _joint(reading.store_path(), run_ids, counts)


@st.cache_resource(show_spinner=False, max_entries=8)
def _joint(store: str, run_ids: tuple[str, ...], counts: tuple[int, ...]) -> pd.DataFrame:
    """`counts` are the trials that are stored."""
    del store, counts
    return wb.joint([reading.reader(name).run for name in run_ids])


def _controls(points: pd.DataFrame, beside: tuple[str, ...]) -> View | None:
    leads = headline(points)
    x = controls.metric(points, "Across", "x", leads.x)
    y = controls.metric(points, "Up", "y", leads.y)
    if x is None or y is None:
        return None
    groups = [*(["run_id"] if beside else []), *fronts.groupings(points)]
    by = address.choose(
        "Colour and front by",
        ["", *groups],
        "group",
        default="run_id" if beside else fronts.default_grouping(points) or "",
        words=fronts.group_words,
    )
    return View(x=x, y=y, by=by or None, kept=controls.filters(points), beside=beside)


def _body(run_id: str, view: View | None) -> None:
    reader = reading.reader(run_id)
    summary = reader.refresh()
    every = _points((run_id, *(view.beside if view is not None else ())))
    points, found = (every, None) if view is None else _found(run_id, len(every), view)
    parts.html(_heading(summary))
    parts.banners(summary)
    if view is None or found is None:
        parts.html(markup.headline(fronts.sentence(every, None, summary)))
        trial_view.failures(reader.trials(), summary)
        return
    chosen = address.parameter("trial")
    holder = _holder(reader, chosen, view)
    if chosen is not None and not holder.holds(chosen):
        st.warning("The trial of this address is not stored in this run.")
    left, right = st.columns([2.2, 1], gap="medium")
    with left:
        _figure(points, found, view, summary)
        hidden = len(every) - len(points)
        if hidden:
            parts.html(markup.note(f"{plural(hidden, 'point')} hidden by the filters at the left."))
    with right:
        trial_view.drawer(holder, chosen, (view.y, view.x))
    _ranking(points, found, view)


def _holder(reader: reading.Reader, trial_id: str | None, view: View) -> reading.Reader:
    """The run on the picture that holds the trial; the run of the page where none does."""
    found = (reading.reader(name) for name in view.beside)
    others = [one for one in found if trial_id is not None and one.holds(trial_id)]
    return others[0] if others and not reader.holds(trial_id or "") else reader


def _found(run_id: str, count: int, view: View) -> tuple[pd.DataFrame, wb.Front | None]:
    kept = tuple((name, tuple(values)) for name, values in view.kept.items())
    run_ids = (run_id, *view.beside)
    state = (count, sum(len(reading.reader(name).run.trial_ids()) for name in run_ids))
    return _front(reading.store_path(), run_ids, state, (view.x, view.y, view.by, kept))


@st.cache_resource(show_spinner=False, max_entries=32)
def _front(
    store: str,
    run_ids: tuple[str, ...],
    state: tuple[int, int],
    asked: tuple[str, str, str | None, Kept],
) -> tuple[pd.DataFrame, wb.Front | None]:
    """The points that the filters keep and their front; bands and chances are drawn once.

    `state` tells what was stored, so that a run that goes on is not shown as it was.
    """
    del store, state
    x, y, by, kept = asked
    points = controls.filtered(_points(run_ids), dict(kept))
    runs = [reading.reader(name).run for name in run_ids]
    return points, fronts.front(points, x, y, by, runs)


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
    among += _untold_note(rows, len(points))
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


def _untold_note(rows: pd.DataFrame, total: int) -> str:
    """What a dash in the column of chances means; empty where there is none."""
    if not rows["chance"].isna().any():
        return ""
    if total > fronts.SURE_UP_TO:
        return f" {MISSING}: chances only up to {fronts.SURE_UP_TO:,} points; filter."
    return f" {MISSING}: no chance can be told of a point without an interval."


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
