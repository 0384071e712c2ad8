"""Overview: what do we know now?"""

from __future__ import annotations

import pandas as pd
import streamlit as st

import workbench as wb
from dashboards import address, fronts, markup, parts, reading, trial_view
from workbench.figures import (
    BEST,
    best,
    cell_words,
    changes_finding,
    headline,
    in_order,
    kind_words,
    plural,
)

HEADS = ("State", "Run", "Question", "Started (UTC)", "Trials", "Engine", "Accelerator")
MAX_RUNS = 200
MAX_KINDS = 3  # of points that may not be compared with each other
MAX_MEMBERS = 12


def main() -> None:
    """The newest run, or the one of the address, in a sentence, numbers and a front; then all."""
    for trouble in reading.unreadable():
        parts.html(markup.note(f"A run cannot be read: {trouble}"))
    runs = [*parts.stored_runs().values()]
    if not runs:
        return
    names = [run.run_id for run in runs]
    shown = parts.asked_run(names) or names[0]
    address.show("run", shown)
    told = "Newest run" if shown == names[0] else "Run of this address"
    parts.live(lambda: _one(shown, told), shown)
    _changed(shown, runs)
    parts.html(markup.section("Runs"))
    parts.html(_runs_table(runs[:MAX_RUNS]))
    if len(runs) > MAX_RUNS:
        parts.html(markup.note(f"The newest {MAX_RUNS} of {len(runs):,} runs."))


def _one(run_id: str, told: str) -> None:
    reader = reading.reader(run_id)
    summary = reader.refresh()
    points = reader.points()
    leads = headline(points)
    front = fronts.front(points, leads.x, leads.y, None)
    parts.html(markup.headline(fronts.sentence(points, front, summary), _eyebrow(summary, told)))
    parts.banners(summary)
    parts.html(_tiles(points, summary))
    left, right = st.columns([1.7, 1], gap="medium")
    with left:
        if front is not None and front.members:
            fronts.show_small(points, front, summary)
        else:
            trial_view.failures(reader.trials(), summary)
    with right:
        _card(summary)
        if front is not None and front.members:
            parts.html(_members(points, front, summary))


def _changed(run_id: str, runs: list[wb.RunSummary]) -> None:
    """What changed against the last run of the same plan, with a link to the whole comparison."""
    summary = next(run for run in runs if run.run_id == run_id)
    later = runs.index(summary) + 1
    before = next(
        (run for run in runs[later:] if run.name == summary.name and run.counts.get("ok")), None
    )
    if before is None or summary.state == "running":
        return
    key = (summary.run_id, sum(summary.counts.values()), sum(before.counts.values()))
    parts.html(markup.section("What changed since the run of this plan before"))
    link = address.link("compare", a=before.run_id, b=run_id, a_where="", b_where="")
    told = _against(reading.store_path(), before.run_id, key)
    parts.html(f'<p class="wb-note">{markup.plain(told)} {markup.anchor("Compare", link)}</p>')


@st.cache_data(show_spinner=False, max_entries=32)
def _against(store: str, before: str, key: tuple[str, int, int]) -> str:
    """The finding of a comparison, or why there is none; `key` ends with what is stored."""
    del store
    try:
        found = wb.compare(reading.reader(before).run, reading.reader(key[0]).run)
        if found.blocked:
            names = ", ".join(one.name.replace("_", " ") for one in found.blocked)
            return f"Not comparable with {before}: these differ: {names}."
        return f"{changes_finding(found)} (against {before})."
    except wb.BenchError as error:
        return f"Not comparable with {before}: {error}"


def _eyebrow(summary: wb.RunSummary, told: str) -> list[str]:
    link = markup.anchor(summary.run_id, address.link("run", run=summary.run_id))
    return [told, link, markup.pill(summary.state), *parts.where(summary)]


def _tiles(points: pd.DataFrame, summary: wb.RunSummary) -> str:
    """A row of tiles for each kind of points: the best of unlike workloads is no number."""
    kinds = pd.Series(wb.comparison_groups(points), index=points.index, dtype=object)
    names = in_order(kinds.unique())
    if len(names) < 2:
        return _tile_row(points, summary)
    rows = [_tile_row(points[kinds == name], summary) for name in names[:MAX_KINDS]]
    more = len(names) - MAX_KINDS
    told = markup.note(f"{plural(more, 'more kind')} of points: see the front.") if more > 0 else ""
    return markup.kinds([*map(kind_words, names[:MAX_KINDS])], rows) + told


def _tile_row(points: pd.DataFrame, summary: wb.RunSummary) -> str:
    found = [(BEST[metric], best(points, metric)) for metric in headline(points).tiles]
    return markup.tiles(
        markup.tile(
            label,
            item,
            address.link("run", run=summary.run_id, trial=item.trial_id) if item.trial_id else None,
        )
        for label, item in found
    )


def _members(points: pd.DataFrame, front: wb.Front, summary: wb.RunSummary) -> str:
    """The trials on the front, fastest for one user last."""
    x, y = front.x.metric, front.y.metric
    rows = points[front.on_front].sort_values(x).head(MAX_MEMBERS)
    cells = [
        (
            markup.Cell(
                html=markup.anchor(
                    words or row["trial_id"],
                    address.link("run", run=summary.run_id, trial=row["trial_id"]),
                ),
                kind="free",
            ),
            markup.figure_cell(row[y]),
            markup.figure_cell(row[x]),
        )
        for words, (_, row) in zip(cell_words(points, rows), rows.iterrows(), strict=True)
    ]
    heads = ("On the front", *(fronts.head(name, (y, x)) for name in (y, x)))
    return markup.table(heads, cells)


def _card(summary: wb.RunSummary) -> None:
    parts.html(markup.section("Trials of this run"))
    parts.html(markup.progress(dict(summary.counts), summary.planned))
    with st.container(horizontal=True):
        st.page_link(
            "views/pareto.py",
            label="Explore the front",
            icon=":material/scatter_plot:",
            query_params={"run": summary.run_id},
        )
        st.page_link(
            "views/run.py",
            label="Open the run",
            icon=":material/list_alt:",
            query_params={"run": summary.run_id},
        )


def _runs_table(runs: list[wb.RunSummary]) -> str:
    rows = [
        (
            markup.Cell(html=markup.pill(run.state)),
            markup.Cell(
                html=markup.anchor(run.run_id, address.link("run", run=run.run_id)),
                kind="fixed whole",
            ),
            markup.text(run.question or run.name, "free whole"),
            markup.text(run.started_utc[:16].replace("T", " "), "soft fixed"),
            markup.text(
                wb.counts_words(run.counts) or "none yet",
                title=f"{plural(run.planned, 'trial')} planned",
            ),
            markup.text(parts.engine_words(run), "soft fixed"),
            markup.text(run.accelerator, "soft"),
        )
        for run in runs
    ]
    return markup.table(HEADS, rows, stacked=True)


if __name__ == "__main__":
    main()
