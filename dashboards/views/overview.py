"""Overview: what do we know now?"""

from __future__ import annotations

import streamlit as st

import workbench as wb
from dashboards import address, fronts, markup, parts, reading
from workbench.figures import best, plural

TILES = (
    ("Best throughput per device", "output_tok_s_device"),
    ("Best interactivity", "tok_s_user"),
    ("Shortest median TTFT", "ttft_s_p50"),
    ("Least energy per token", "energy_j_token"),
)
HEADS = ("State", "Run", "Question", "Started (UTC)", "Trials", "Engine", "Accelerator")
MAX_RUNS = 200


def main() -> None:
    """The newest run in a sentence, four numbers and a front; then every run."""
    runs = reading.summaries()
    for trouble in reading.unreadable():
        parts.html(markup.note(f"A run cannot be read: {trouble}"))
    if not runs:
        parts.empty_store()
        return
    parts.live(lambda: _newest(runs[0].run_id), runs[0].run_id)
    parts.html(markup.section("Runs"))
    parts.html(_runs_table(runs[:MAX_RUNS]))
    if len(runs) > MAX_RUNS:
        parts.html(markup.note(f"The newest {MAX_RUNS} of {len(runs):,} runs."))


def _newest(run_id: str) -> None:
    reader = reading.reader(run_id)
    summary = reader.refresh()
    points = reader.points()
    front = fronts.front(points, fronts.DEFAULT_X, fronts.DEFAULT_Y, None)
    parts.html(markup.headline(fronts.sentence(points, front, summary), _eyebrow(summary)))
    parts.banners(summary)
    parts.html(markup.tiles(_tiles(points, summary)))
    left, right = st.columns([2, 1], gap="large")
    with left:
        fronts.show_small(points, front, summary)
    with right:
        _card(summary)


def _eyebrow(summary: wb.RunSummary) -> list[str]:
    link = markup.anchor(summary.run_id, address.link("run", run=summary.run_id))
    where = [summary.model, summary.engine, summary.accelerator]
    return ["Newest run", link, markup.pill(summary.state), *map(markup.plain, filter(None, where))]


def _tiles(points: object, summary: wb.RunSummary) -> list[str]:
    found = [(label, best(points, metric)) for label, metric in TILES]
    return [
        markup.tile(
            label,
            item,
            address.link("run", run=summary.run_id, trial=item.trial_id) if item.trial_id else None,
        )
        for label, item in found
    ]


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
                html=markup.anchor(run.run_id, address.link("run", run=run.run_id)), kind="fixed"
            ),
            markup.text(run.question or run.name, "free"),
            markup.text(run.started_utc[:16].replace("T", " "), "soft fixed"),
            markup.text(_trials(run), title=f"{plural(run.planned, 'trial')} planned"),
            markup.text(run.engine, "soft"),
            markup.text(run.accelerator, "soft"),
        )
        for run in runs
    ]
    return markup.table(HEADS, rows)


def _trials(run: wb.RunSummary) -> str:
    told = [f"{count} {state}" for state, count in run.counts.items() if count]
    return ", ".join(told) or "none yet"


if __name__ == "__main__":
    main()
