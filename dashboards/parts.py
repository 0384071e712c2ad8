"""What several pages show: figures with their downloads, banners, empty pages, the look."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

import workbench as wb
from dashboards import address, markup, reading
from workbench.figures import is_empty

STYLE = Path(__file__).parent / "style.css"
TOUCH = f"<script>{(STYLE.parent / 'touch.js').read_text(encoding='utf-8')}</script>"
REFRESH_S = 2
LABELS = "parts.labels"


def apply_style() -> None:
    """Load the style sheet and what makes a tap a click; call once a page run, first."""
    st.html(STYLE)
    st.html(TOUCH, unsafe_allow_javascript=True)


def is_dark() -> bool:
    """True where the visitor's page is dark; a first visit may not have told yet."""
    return st.context.theme.type == "dark"


def html(body: str) -> None:
    """Show ready HTML in the visitor's theme."""
    st.html(f'<div class="{"wb-dark" if is_dark() else "wb-light"}">{body}</div>')


def stored_runs() -> dict[str, wb.RunSummary]:
    """The runs by their ids, newest first; where there are none, what to do is shown."""
    runs = {run.run_id: run for run in reading.summaries()}
    if not runs:
        _empty_store()
    return runs


def opened() -> wb.RunSummary | None:
    """The run that a page of one run shows, chosen at its side; what to do where there is none."""
    runs = stored_runs()
    if not runs:
        return None
    with st.sidebar:
        return _chosen_run(runs)


def heading(summary: wb.RunSummary, question: str, *more: str) -> None:
    """Which run is shown, and the page's question; `more` are pieces of ready HTML."""
    link = markup.anchor(summary.run_id, address.link("run", run=summary.run_id))
    told = [link, markup.pill(summary.state), *where(summary), *more]
    html(markup.headline(question, told))
    banners(summary)


def where(summary: wb.RunSummary) -> list[str]:
    """Model, engine and accelerator as pieces of ready HTML, each told once."""
    told = [summary.model, engine_words(summary), summary.accelerator]
    return [markup.plain(name) for name in dict.fromkeys(filter(None, told))]


def engine_words(summary: wb.RunSummary) -> str:
    """The engine in words: `in process` is the one of this project."""
    return summary.engine.replace("_", " ")


def nothing(sentence: str, command: str) -> None:
    """What a page says where the run holds nothing for it, with what fills it."""
    html(f'<div class="wb-empty"><p><b>{markup.plain(sentence)}</b></p></div>')
    st.code(command, language="yaml")


def banners(summary: wb.RunSummary) -> None:
    """The labels of a run, on every page that shows its numbers."""
    banner(summary.labels)


def banner(labels: Iterable[str]) -> None:
    """Labels, told once a page: the figures below leave them out of what the page shows."""
    st.session_state[LABELS] = list(labels)
    if st.session_state[LABELS]:
        html(markup.banner(st.session_state[LABELS]))


def _without_labels(subtitle: str) -> str:
    """The subtitle of a figure less what the banner says; saved pictures keep all of it."""
    told = {markup.plain(label) for label in st.session_state.get(LABELS, ())}
    kept = [_after(part.split(", "), told) for part in subtitle.split("; ")]
    return "; ".join(", ".join(words) for words in kept if words)


def _after(words: list[str], told: set[str]) -> list[str]:
    """The words that follow the labels."""
    return words if not words or words[0] not in told else _after(words[1:], told)


def _empty_store() -> None:
    """The page of a store without runs."""
    html(
        '<div class="wb-empty"><p><b>No run is stored here yet.</b></p>'
        "<p>Fill the store with the demo sweep, about three minutes on two cores:</p></div>"
    )
    st.code(f"workbench demo --store {reading.store_path()}", language="bash")
    st.caption("In a checkout, `make demo` installs and runs the same.")


def _chosen_run(runs: dict[str, wb.RunSummary]) -> wb.RunSummary:
    """The run of the address, chosen in the sidebar; the newest by default.

    An address with a trial and no run means the newest run that holds the trial.
    """
    asked = asked_run(list(runs))
    if asked is None:
        asked = _holder(list(runs), address.parameter("trial")) or next(iter(runs))
    address.remember("run", asked)
    picked = address.choose(
        "Run", list(runs), "run", default="", words=lambda n: run_words(runs[n])
    )
    if picked != asked:
        address.remember("trial", None)  # it was of the run before
    return runs[picked]


def asked_run(run_ids: list[str]) -> str | None:
    """The run of the address, which may be the beginning of its id; told where there is none."""
    asked = address.parameter("run")
    full = next((name for name in run_ids if asked and name.startswith(asked)), None)
    if asked is not None and full is None:
        st.warning("The run of this address is not in the store; the newest is shown instead.")
    return full


def _holder(run_ids: list[str], trial_id: str | None) -> str | None:
    """The first of the runs that holds the trial."""
    if trial_id is None:
        return None
    return next((name for name in run_ids if reading.reader(name).holds(trial_id)), None)


def run_words(run: wb.RunSummary) -> str:
    """A run as people name it: its plan and when it began."""
    return f"{run.name}, {run.started_utc[:16].replace('T', ' ')}, {run.run_id[-4:]}"


def live(body: Callable[[], None], run_id: str) -> None:
    """Show `body`; while the run goes on, again every two seconds."""
    if reading.reader(run_id).refresh().state != "running":
        body()
        return

    def again() -> None:
        if reading.reader(run_id).refresh().state != "running":
            st.rerun()
        body()

    st.fragment(again, run_every=REFRESH_S)()


def figure(
    drawn: go.Figure,
    rows: pd.DataFrame,
    name: str,
    *,
    on_click: Callable[[], None] | None = None,
    alt: str = "",
) -> None:
    """A figure below its title, with its downloads: SVG or PNG by the camera, CSV, JSON, the link.

    One without a mark is its title alone: empty axes say less. The title is text of the page, as
    wide as the page allows. The figure keeps its own for the pictures that are saved of it; on the
    page that part is cut off.
    """
    image = str(st.session_state.get(f"{name}.image", "svg")).lower()
    head = drawn.layout.meta
    if is_empty(drawn):
        html(f'<h2 class="wb-figure-title">{head["title"]}</h2>')
        return
    html(
        markup.figure_head(
            head["title"], _without_labels(head["subtitle"]), head["height"], f"{name}-chart"
        )
    )
    st.plotly_chart(
        drawn,
        key=f"{name}-chart",
        theme=None,
        on_select=on_click or "ignore",
        selection_mode="points",
        alt=alt or None,
        config={
            "displaylogo": False,
            "responsive": True,
            "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"],
            "toImageButtonOptions": {"format": image, "filename": name, "scale": 2},
        },
    )
    with st.popover("Download or share", type="tertiary", icon=":material/download:"):
        _downloads(drawn, rows, name)


def clicked(name: str) -> str | None:
    """The trial of the point that was clicked in the figure `name`; None beside every point."""
    chosen = st.session_state[f"{name}-chart"].selection.points
    told = chosen[0].get("customdata") if chosen else None
    return str(told[0]) if told else None


def _downloads(drawn: go.Figure, rows: pd.DataFrame, name: str) -> None:
    st.segmented_control(
        "Picture saved by the figure's camera button",
        ["SVG", "PNG"],
        default="SVG",
        key=f"{name}.image",
    )
    with st.container(horizontal=True):
        st.download_button(
            "CSV of the rows",
            data=lambda: rows.to_csv(index=False),
            file_name=f"{name}.csv",
            mime="text/csv",
            key=f"{name}.csv",
            on_click="ignore",
        )
        st.download_button(
            "JSON of the figure",
            data=lambda: drawn.to_json(),
            file_name=f"{name}.json",
            mime="application/json",
            key=f"{name}.json",
            on_click="ignore",
        )
    st.caption("Link to what is shown")
    st.code(address.here(), language=None)
