"""Compare: is B really better than A?"""

from __future__ import annotations

import dataclasses

import pandas as pd
import streamlit as st

import workbench as wb
from dashboards import address, comparability_view, controls, markup, parts, reading
from dashboards.compare_sides import MAX_POINTS, SIDES, Side, chosen, example, take_from_address
from workbench.compare_words import ESTIMATES
from workbench.effects import Basis
from workbench.figures import (
    ARM,
    LATENCY_FAMILIES,
    Look,
    arms_front,
    beats_figure,
    change_words,
    changes_figure,
    changes_finding,
    distributions,
    judged,
    number,
    pareto,
    point_order,
)

VERDICTS = {"better": "passed", "worse": "failed", "changed": "running"}
ROW_PX, MARGINS_PX = 20, 140  # of a chart with a label a row


def main() -> None:
    """What differs between two sides first, then what that did to the numbers."""
    runs = parts.stored_runs()
    if not runs:
        return
    take_from_address()
    with st.sidebar:
        a, b = (chosen(name, runs) for name in SIDES)
    _body(a, b, runs)


def _body(a: Side, b: Side, runs: dict[str, wb.RunSummary]) -> None:
    parts.html(markup.headline("Is B really better than A?", _names(a, b)))
    labels = dict.fromkeys(label for s in (a, b) for label in runs[s.run_id].labels)
    parts.banner(labels)
    if a == b:
        told = "A and B are the same points. Choose another run or setting; or:"
        parts.nothing(told, example(a.run_id))
        return
    accepted = tuple(filter(None, (address.parameter("accept") or "").split(",")))
    stored = tuple(len(reading.reader(side.run_id).run.trial_ids()) for side in (a, b))
    found = _compared(reading.store_path(), a, b, accepted, stored)
    if isinstance(found, str):
        parts.html(markup.note(f"These cannot be compared: {found}"))
        return
    comparability_view.differences(found, accepted)
    comparability_view.bases(found)
    if not found.blocked:
        _deltas(found)


@st.cache_resource(show_spinner=False, max_entries=8)
def _compared(
    store: str, a: Side, b: Side, accepted: tuple[str, ...], stored: tuple[int, ...]
) -> wb.Comparison | str:
    """The comparison, whose tables are computed once, or why there is none.

    `stored` counts the trials of both runs.
    """
    del store, stored
    try:
        return wb.compare(a.arm(), b.arm(), accept=accepted)
    except wb.BenchError as error:
        return str(error)


def _names(a: Side, b: Side) -> list[str]:
    return [
        f"{label}: "
        + markup.anchor(" ".join([side.run_id, *side.where]), address.link("run", run=side.run_id))
        for label, side in (("A", a), ("B", b))
    ]


def _deltas(found: wb.Comparison) -> None:
    look = Look(subtitle=_subtitle(found), dark=parts.is_dark(), height=340)
    if found.overall["ratio"].notna().any():
        room = max(look.height, ROW_PX * int(found.overall["ratio"].notna().sum()) + MARGINS_PX)
        tall = dataclasses.replace(look, height=room)
        parts.figure(*changes_figure(found, look=tall), "changes")
    else:
        parts.html(markup.section(changes_finding(found)))
    parts.html(_overall(found.overall))
    _fronts(found, look)
    _points(found)
    parts.html(markup.section("Settings that differ"))
    parts.html(_configuration(found.configuration))
    _distributions(found, look)


def _subtitle(found: wb.Comparison) -> str:
    labels = dict.fromkeys(x for rows in found.a.points["labels"] for x in rows)
    return ", ".join([*labels, found.a.run.summary.model, found.a.run.summary.accelerator])


def _overall(rows: pd.DataFrame) -> str:
    cells = [
        (
            markup.text(row["label"], "name whole", wb.METRICS[row["metric"]].definition),
            _change(row),
            markup.Cell(html=_verdict(row)),
            markup.text(row["sentence"], "free soft whole"),
            markup.text(row["basis"], "soft"),
        )
        for _, row in rows.iterrows()
    ]
    heads = ("Metric", "B against A (95 %)", "Verdict", "In words", "Interval over")
    return markup.table(heads, cells, stacked=True)


def _change(row: pd.Series) -> markup.Cell:
    told = change_words(row["ratio"], row["low"], row["high"])
    return markup.Cell(html=markup.plain(told), kind="num", title=str(row["reason"] or ""))


def _verdict(row: pd.Series) -> str:
    verdict = str(row["verdict"])
    return markup.pill_of(verdict, VERDICTS.get(verdict, "skipped"))


def _fronts(found: wb.Comparison, look: Look) -> None:
    x, y = wb.DEFAULT_X.metric, wb.DEFAULT_Y.metric
    if any(name not in arm.points for name in (x, y) for arm in (found.a, found.b)):
        return
    points, front = arms_front(found, x, y)
    left, right = st.columns(2, gap="medium")
    with left:
        plain = dataclasses.replace(look, subtitle="")  # the figure brings the labels itself
        parts.figure(pareto(points, front, by=ARM, look=plain), points, "arms")
    with right:
        parts.figure(*beats_figure(front, look=look, judged=judged(found, x, y)), "beats")


def _points(found: wb.Comparison) -> None:
    metric = address.choose(
        "Every matched point, by", list(found.metrics), "by", default=found.metrics[0],
        words=controls.heading,
    )  # fmt: skip
    rows = found.points[found.points["metric"] == metric]
    rows = rows.iloc[point_order(rows["point"])]
    cells = [
        (
            markup.text(row["point"], "free whole"),
            _number(row["a"], found.a.run.run_id, row["trial_a"]),
            _number(row["b"], found.b.run.run_id, row["trial_b"]),
            _change(row),
            markup.Cell(html=_verdict(row)),
            markup.text(row["sentence"], "free soft whole"),
        )
        for _, row in rows.head(MAX_POINTS).iterrows()
    ]
    heads = ("Point", "A", "B", "B against A (95 %)", "Verdict", "In words")
    parts.html(markup.table(heads, cells, stacked=True))
    if rows["basis"].isin([Basis.PAIRED, Basis.APART]).any():
        parts.html(markup.note(ESTIMATES))


def _number(value: float, run_id: str, trial_id: str) -> markup.Cell:
    target = address.link("run", run=run_id, trial=trial_id)
    return markup.Cell(html=markup.anchor(number(value), target), kind="num")


def _configuration(rows: pd.DataFrame) -> str:
    cells = [
        (
            markup.text(row["setting"].replace("_", " "), "soft"),
            markup.text(row["a"], "mark free"),
            markup.text(row["b"], "mark free"),
            markup.text("chosen to differ" if row["chosen"] else "", "soft"),
        )
        for _, row in rows.iterrows()
    ]
    if not cells:
        return markup.note("None: both sides have the same settings.")
    return markup.table(("Setting", "A", "B", ""), cells, ["set"] * len(cells))


def _distributions(found: wb.Comparison, look: Look) -> None:
    pairs = found.points.drop_duplicates("point")
    names = pairs["point"].tolist()
    left, right = st.columns(2)
    with left:
        point = address.choose("Distributions at", names, "at", default=names[0])
    with right:
        family = address.choose(
            "of", list(LATENCY_FAMILIES), "family", default="ttft_s",
            words=lambda name: LATENCY_FAMILIES[name][0],
        )  # fmt: skip
    pair = pairs[pairs["point"] == point].iloc[0]
    trials = {
        "A": reading.trial(found.a.run.run_id, pair["trial_a"]),
        "B": reading.trial(found.b.run.run_id, pair["trial_b"]),
    }
    parts.figure(*distributions(trials, family, look=look), "distribution")


if __name__ == "__main__":
    main()
