"""What a page asks at its side: metrics, axes, filters, trials. The address keeps each answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import streamlit as st

import workbench as wb
from dashboards import address, fronts
from workbench.figures import axis_words, cell_words, varied

MAX_VALUES = 50  # of an axis that can be filtered
MAX_TRIALS = 500  # that can be chosen from a list


def metric(points: pd.DataFrame, label: str, name: str, default: str) -> str | None:
    """A metric that some point has; None where nothing was measured."""
    options = fronts.metrics(points)
    if not options:
        return None
    first = default if default in options else options[0]
    return address.choose(label, options, name, default=first, words=heading)


def heading(name: str) -> str:
    """A metric as a choice names it."""
    return wb.METRICS[name].heading


def axes(points: pd.DataFrame, wanted: Sequence[str]) -> tuple[str, str | None] | None:
    """Two of the axes that vary, the wanted ones first; one alone has no second."""
    options = varied(points)
    if not options:
        return None
    ordered = [name for name in wanted if name in options]
    ordered += [name for name in options if name not in ordered]
    across = address.choose("Across", options, "across", default=ordered[0], words=capital)
    rest = [name for name in options if name != across]
    if not rest:
        return across, None
    second = next((name for name in ordered if name != across), rest[0])
    return across, address.choose("Up, and one line each", rest, "up", default=second,
                                  words=capital)  # fmt: skip


def capital(name: str) -> str:
    """An axis or setting as a control, or the head of a column, names it."""
    return axis_words(name).capitalize()


def filters(points: pd.DataFrame, apart_from: Sequence[str | None] = ()) -> dict[str, list[str]]:
    """Columns that vary -> the values to keep, in words."""
    names = _told_once(points, [
        name
        for name in fronts.groupings(points)
        if name.startswith(("axis.", "workload."))
        and 1 < len(fronts.values(points, name)) <= MAX_VALUES
    ])  # fmt: skip
    names = [name for name in names if name not in apart_from]
    if names:
        st.markdown("**Keep only**")
    return {
        name: address.choose_some(capital(name), fronts.values(points, name), name.split(".")[-1])
        for name in names
    }


def _told_once(points: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """The columns that part the points otherwise than every column before them."""
    seen: dict[tuple[int, ...], str] = {}
    for name in names:
        codes, _ = pd.factorize(fronts.in_words(points, name))
        seen.setdefault(tuple(codes.tolist()), name)
    return list(seen.values())


def filtered(points: pd.DataFrame, kept: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """The points that have one of the values to keep in each column."""
    for name, wanted in kept.items():
        if name in points:
            points = points[fronts.in_words(points, name).isin(wanted)]
    return points


def trial(trials: pd.DataFrame, label: str = "Trial") -> str | None:
    """A trial of which something was measured; None where there is none. The first by default."""
    measured = trials[trials["state"].isin(["ok", "invalid"])]
    if measured.empty:
        return None
    rows = measured.head(MAX_TRIALS)
    asked = address.parameter("trial")
    if asked in set(measured["trial_id"]) - set(rows["trial_id"]):
        rows = pd.concat([measured[measured["trial_id"] == asked], rows])
    names = trial_names(trials, rows)
    options = list(names)
    if len(measured) > len(rows):
        st.caption(f"The first {len(rows):,} of {len(measured):,} trials; the Run page has all.")
    return address.choose(label, options, "trial", default=options[0], words=names.__getitem__)


def trial_names(trials: pd.DataFrame, rows: pd.DataFrame) -> dict[str, str]:
    """Trial id -> its cell in words, with its repeat where there are several."""
    several = trials["repeat"].nunique() > 1
    cells = zip(cell_words(trials, rows), rows["trial_id"], rows["repeat"], strict=True)
    return {
        trial_id: (words or trial_id) + (f", repeat {repeat}" if several else "")
        for words, trial_id, repeat in cells
    }
