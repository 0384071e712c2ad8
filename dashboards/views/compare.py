"""Compare: is B really better than A?"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
import streamlit as st

import workbench as wb
from dashboards import address, controls, markup, parts, reading
from workbench.arms import TRIAL
from workbench.comparability import Difference
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
    levels,
    number,
    pareto,
    point_order,
    varied,
)

SEVERITIES = {"block": "failed", "warn": "invalid", "note": "skipped"}
VERDICTS = {"better": "passed", "worse": "failed", "changed": "running"}
MAX_POINTS = 200
EXAMPLE = "workbench compare RUN:draft_length=0 RUN:draft_length=5"


@dataclass(frozen=True, kw_only=True)
class Side:
    """A run and the settings that its points are chosen by."""

    run_id: str
    where: tuple[str, ...]  # "setting=value"

    def arm(self) -> wb.Arm:
        """The points that are meant."""
        pairs = (text.partition("=") for text in self.where)
        return wb.Arm(
            run=reading.reader(self.run_id).run, where={name: value for name, _, value in pairs}
        )


def main() -> None:
    """What differs between two sides first, then what that did to the numbers."""
    runs = {run.run_id: run for run in reading.summaries()}
    if not runs:
        parts.empty_store()
        return
    with st.sidebar:
        a, b = (_side(name, runs) for name in ("a", "b"))
    _body(a, b, runs)


def _side(name: str, runs: dict[str, wb.RunSummary]) -> Side:
    """One side as the address has it; at first two runs of one plan, or two values of an axis."""
    label = name.upper()
    default, preset = _defaults(runs)[name]
    picked = address.choose(
        label, list(runs), name, default=default, words=lambda n: parts.run_words(runs[n])
    )
    options = [*_settings(picked), *_single_points(picked)]
    asked = address.parameter(f"{name}_where")
    texts = asked.split(",") if asked is not None else preset if picked == default else []
    where = st.multiselect(
        f"Only points of {label} with", options, default=[t for t in texts if t in options],
        key=f"compare.{name}.{picked}", placeholder="all", format_func=_in_words(picked),
    )  # fmt: skip
    address.remember(f"{name}_where", ",".join(where) if where != preset else None)
    address.show(f"{name}_where", ",".join(where))
    return Side(run_id=picked, where=tuple(where))


def _settings(run_id: str) -> list[str]:
    trials = reading.reader(run_id).trials()
    return [
        f"{axis.removeprefix('axis.')}={value}"
        for axis in varied(trials)
        if len(found := levels(trials, axis)) <= controls.MAX_VALUES
        for value in found
        if "," not in value
    ]


def _single_points(run_id: str) -> list[str]:
    """Each valid point by its trial: one on either side makes a difference of two points."""
    points = reading.reader(run_id).points()
    ids = points.loc[points["valid"].astype(bool), "trial_id"]
    return [f"{TRIAL}={name}" for name in ids.head(MAX_POINTS)]


def _in_words(run_id: str) -> Callable[[str], str]:
    """A setting as it is; a single point by its cell."""
    trials = reading.reader(run_id).trials()
    names = controls.trial_names(trials, trials)

    def words(text: str) -> str:
        name, _, value = text.partition("=")
        return f"only {names.get(value, value)}" if name == TRIAL else text

    return words


def _defaults(runs: dict[str, wb.RunSummary]) -> dict[str, tuple[str, list[str]]]:
    newest = next(iter(runs))
    before = [name for name in runs if name != newest and runs[name].name == runs[newest].name]
    if before:
        return {"a": (before[0], []), "b": (newest, [])}
    options = _settings(newest)
    names = dict.fromkeys(text.partition("=")[0] for text in options)
    chosen = next((name for name in ("draft_length", *names) if name in names), None)
    first = [text for text in options if text.partition("=")[0] == chosen]
    return {"a": (newest, first[:1]), "b": (newest, first[-1:])}


def _body(a: Side, b: Side, runs: dict[str, wb.RunSummary]) -> None:
    parts.html(markup.headline("Is B really better than A?", _names(a, b)))
    labels = dict.fromkeys(label for s in (a, b) for label in runs[s.run_id].labels)
    parts.banner(labels)
    if a == b:
        parts.nothing("A and B are the same points. Choose another run or setting; or:", EXAMPLE)
        return
    accepted = tuple(filter(None, (address.parameter("accept") or "").split(",")))
    stored = tuple(len(reading.reader(side.run_id).run.trial_ids()) for side in (a, b))
    found = _compared(reading.store_path(), a, b, accepted, stored)
    if isinstance(found, str):
        parts.html(markup.note(f"These cannot be compared: {found}"))
        return
    _differences(found, accepted)
    _bases(found)
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


def _differences(found: wb.Comparison, accepted: tuple[str, ...]) -> None:
    """The comparability banner: what blocks, what may move numbers, what is only said."""
    if found.blocked:
        told = "; ".join(one.name.replace("_", " ") for one in found.blocked)
        parts.html(markup.banner([f"No delta is shown, because these differ: {told}"]))
        picked = st.multiselect(
            "Show deltas all the same, accepting that these differ",
            [one.name for one in found.differences if str(one.severity) == "block"],
            default=list(accepted), key="compare.accept",
        )  # fmt: skip
        if tuple(picked) != accepted:
            address.remember("accept", ",".join(picked) or None)
            st.rerun()
    rows = [
        (
            markup.Cell(html=markup.pill_of(_severity(one), SEVERITIES[str(one.severity)])),
            markup.text(one.sentence, "free"),
            markup.text(one.a, "free soft"),
            markup.text(one.b, "free soft"),
        )
        for one in found.differences
    ]
    title = f"What differs ({len(rows)})" if rows else "Nothing that is recorded differs"
    with st.expander(title, expanded=bool(found.blocked)):
        if rows:
            parts.html(markup.table(("", "Difference", "A", "B"), rows))


def _bases(found: wb.Comparison) -> None:
    """Of another tool's result: how either side came by its numbers, and what has no partner."""
    bases, apart = found.bases, found.apart
    if bases.empty and apart.empty:
        return
    with st.expander(f"How either side came by its numbers ({len(bases)} metrics)"):
        cells = [
            (markup.text(row.label, "name"), markup.text(row.a, "free soft"),
             markup.text(row.b, "free soft"))
            for row in bases.itertuples()
        ]  # fmt: skip
        parts.html(markup.table(("Metric", "A", "B"), cells))
    with st.expander(f"What is not comparable, and why ({len(apart)} metrics)"):
        cells = [
            (markup.text(row.label, "name"), markup.text(row.why, "free soft"))
            for row in apart.itertuples()
        ]
        parts.html(markup.table(("Metric", "Why"), cells))


def _severity(one: Difference) -> str:
    return f"{one.severity}, accepted" if one.accepted else str(one.severity)


def _deltas(found: wb.Comparison) -> None:
    look = Look(subtitle=_subtitle(found), dark=parts.is_dark(), height=340)
    if found.overall["ratio"].notna().any():
        parts.figure(*changes_figure(found, look=look), "changes")
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
            markup.text(row["point"], "free"),
            _number(row["a"], found.a.run.run_id, row["trial_a"]),
            _number(row["b"], found.b.run.run_id, row["trial_b"]),
            _change(row),
            markup.Cell(html=_verdict(row)),
            markup.text(row["sentence"], "free soft"),
        )
        for _, row in rows.head(MAX_POINTS).iterrows()
    ]
    parts.html(
        markup.table(("Point", "A", "B", "B against A (95 %)", "Verdict", "In words"), cells)
    )


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
