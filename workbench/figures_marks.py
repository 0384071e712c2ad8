"""The rows behind a Pareto picture: numbers, who is on the front, hover texts, the finding."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import pandas as pd

from experiments.metric_specs import MetricSpec
from workbench.catalogue import METRICS
from workbench.columns import worded, words_of
from workbench.figures_chart import metric_title
from workbench.figures_text import (
    axis_mark,
    axis_phrase,
    axis_words,
    in_order,
    kind_words,
    number,
    plural,
    repeats_words,
    safe,
    short,
    span_words,
    value_text,
)
from workbench.fronts import Front, comparison_groups
from workbench.pareto import Axis
from workbench.words import counts_words

EQUALS = "\u00a0=\u00a0"  # no line breaks beside it
MAX_KINDS = 3  # a sentence tells of no more kinds of points
MAX_LABEL_AXES = 4  # a label beside a point names no more
CROWDED_FROM = 1000
"""Points; above this hovers are short, WebGL draws, and no requests are read for chances."""
SURE_UP_TO = 3000
"""Points; above this chances and bands are not computed: they would take seconds."""


def marks_table(points: pd.DataFrame, front: Front, by: str | None) -> pd.DataFrame:
    """One row a trial: x, y with .low .high .n .basis, drawn, on_front, chance, hollow, group.

    A basis is None where the number was measured here, `imported` says that one of them was not.
    `kind` says which rows may be compared with each other. `points` has the columns of
    `Run.points()`, row by row the ones that `front` was made of.
    """
    plain = ("trial_id", "run_id", "repeat", "state", "reason", "labels")
    kept = [name for name in plain if name in points]
    rows = points[kept + _axes(points)].copy()
    rows["repeats"] = points.get("repeats", 1)
    for side, axis in (("x", front.x), ("y", front.y)):
        for part in ("", ".low", ".high", ".n"):
            column = axis.metric + part
            value = points.get(column)
            rows[side + part] = pd.to_numeric(value) if value is not None else np.nan
        rows[f"{side}.basis"] = points.get(f"{axis.metric}.basis")
    rows["imported"] = rows[["x.basis", "y.basis"]].notna().any(axis=1)
    rows["drawn"] = np.isfinite(rows["x"].astype(float)) & np.isfinite(rows["y"].astype(float))
    rows["on_front"] = front.on_front
    rows["chance"] = front.probability if len(points) <= SURE_UP_TO else np.nan
    rows["why"] = [reason or "" for reason in front.excluded]
    rows["hollow"] = (rows["why"] != "") | (rows["state"] != "ok")
    rows["kind"] = [kind_words(name) for name in comparison_groups(points)]
    apart = rows["kind"].nunique() > 1
    rows["group"] = words_of(points[by]) if by is not None else rows["kind"] if apart else ""
    return rows


def _axes(frame: pd.DataFrame) -> list[str]:
    return [name for name in frame.columns if str(name).startswith("axis.")]


def varying(frame: pd.DataFrame) -> list[str]:
    """The axis columns of `frame` that hold more than one value."""
    return [name for name in _axes(frame) if words_of(frame[name]).nunique() > 1]


def _describe(row: pd.Series, axes: list[str]) -> str:
    return ", ".join(axis_phrase(name, short(value_text(row[name]), 24)) for name in axes)


def _quantity(axis: Axis, value: float) -> str:
    spec = spec_of(axis.metric)
    if spec.unit.count("/") > 1:  # says of what it is: tok/s/device
        return f"{number(value)} {spec.unit}"
    return f"{spec.label} {number(value)} {spec.unit}".strip()


def _best(values: pd.Series, axis: Axis) -> object:
    return values.idxmax() if axis.direction == "max" else values.idxmin()


def hovers(rows: pd.DataFrame, x: Axis, y: Axis) -> list[str]:
    """What is told of each row of `marks_table` under the pointer."""
    heads = _hover_heads(rows)
    xs, ys = _hover_numbers(rows, "x", x), _hover_numbers(rows, "y", y)
    ends = _hover_ends(rows)
    return [
        "<br>".join(part for part in parts if part)
        for parts in zip(heads, ys, xs, ends, strict=True)
    ]


def _hover_heads(rows: pd.DataFrame) -> list[str]:
    """The axes that vary, one a line."""
    names = varying(rows)
    columns = [worded(rows[name], partial(_axis_line, name)).tolist() for name in names]
    return ["<br>".join(cells) for cells in zip(*columns, strict=True)] or [""] * len(rows)


def _axis_line(name: str, value: object) -> str:
    return f"{safe(axis_words(name))} {safe(short(value_text(value), 40))}"


def _hover_numbers(rows: pd.DataFrame, side: str, axis: Axis) -> list[str]:
    """The number with its interval and sample size; the number alone on a crowded figure."""
    spec = spec_of(axis.metric)
    head, unit = f"{safe(spec.label)} <b>", f"</b> {safe(spec.unit)}"
    values = [head + number(value) + unit for value in rows[side].tolist()]
    if len(rows) > CROWDED_FROM:
        return values
    cells = zip(
        values,
        *(rows[side + part].tolist() for part in (".low", ".high", ".n")),
        rows["repeats"].tolist(),
        rows[f"{side}.basis"].tolist(),
        strict=True,
    )
    return [
        value
        + (
            f"<br>95 % interval {span}"
            if (span := span_words(low, high, int(repeats), axis.metric))
            else ""
        )
        + (f", n={n:.0f}" if n == n else "")
        + (f"<br><i>{safe(short(basis, 110))}</i>" if isinstance(basis, str) else "")
        for value, low, high, n, repeats, basis in cells
    ]


def _hover_ends(rows: pd.DataFrame) -> list[str]:
    """Why a trial is not valid or which repeats were left out; repeats; the trial."""
    told = [
        reason if isinstance(reason, str) else why
        for why, reason in zip(rows["why"], rows["reason"].tolist(), strict=True)
    ]
    states = [
        f"<b>{safe(state)}</b>: " if state != "ok" else "" for state in rows["state"].tolist()
    ]
    chances = [
        f"on the front in {number(100 * chance)} % of draws<br>" if chance == chance else ""
        for chance in rows["chance"].tolist()
    ]
    cells = zip(
        states, told, chances, rows["repeats"].tolist(), rows["trial_id"].tolist(), strict=True
    )
    return [
        (f"{state}{safe(short(reason, 90))}<br>" if reason else "")
        + chance
        + (f"{repeats_words(int(repeats))}<br>" if repeats > 1 else "")
        + f"trial {safe(trial)}"
        for state, reason, chance, repeats, trial in cells
    ]


def stamp(points: pd.DataFrame) -> str:
    """The labels of the trials, such as `indicative`, each once; empty for none."""
    labels: dict[str, None] = {}
    for found in points.get("labels", ()):
        labels.update(dict.fromkeys(found if isinstance(found, (list, tuple)) else ()))
    return ", ".join(labels)


def subtitle(given: str, rows: pd.DataFrame, drawn: pd.DataFrame, by: str | None) -> str:
    """What is drawn and what is not, after the labels of the trials and the sentence given."""
    parts = [text for text in (stamp(rows), given) if text]
    parts.append(f"{plural(len(drawn), 'point')}, {drawn['on_front'].sum():,} on the front")
    if drawn["chance"].notna().any():
        parts.append("bands and opacity: 95 %, and the chance to be on the front")
    if len(rows) > SURE_UP_TO:
        parts.append(f"bands and chances only up to {SURE_UP_TO:,} points: filter")
    if drawn["imported"].any():
        squares = plural(int(drawn["imported"].sum()), "square")
        parts.append(f"{squares}: imported, the hover says how their tool measures")
    if drawn["hollow"].any():
        parts.append(f"{drawn['hollow'].sum():,} hollow: not valid")
    missing = rows.loc[~rows["drawn"], "state"].value_counts()
    if not missing.empty:
        parts.append(f"not drawn: {counts_words(missing.to_dict())}")
    parts.append(_label_key(label_axes(drawn[drawn["on_front"]], by)))
    return "; ".join(part for part in parts if part)


def label_axes(members: pd.DataFrame, by: str | None) -> list[str]:
    """The axes that are written beside points: those that vary and that no colour tells."""
    return [name for name in varying(members) if name != by][:MAX_LABEL_AXES]


def _label_key(names: list[str]) -> str:
    """What the letters beside the front's points stand for."""
    marks = {axis_mark(name).strip(): axis_words(name) for name in names}
    told = [f"{mark}{EQUALS}{words}" for mark, words in marks.items() if mark != words]
    return ", ".join(told)


def finding(points: pd.DataFrame, front: Front) -> str:
    """What the front shows, in one sentence computed from its members.

    Points of unlike models, numerics or workloads are told apart, never compared.
    """
    rows = marks_table(points, front, None)
    return finding_of(rows[rows["drawn"]], front)


def finding_of(drawn: pd.DataFrame, front: Front) -> str:
    """`finding` from the rows of `marks_table` that are drawn."""
    members = drawn[drawn["on_front"]]
    if members.empty:
        return "No valid point has both numbers yet"
    kinds = in_order(members["kind"].unique())
    if len(kinds) > 1:
        told = [_best_of(kind, members[members["kind"] == kind], front) for kind in kinds]
        more = f"; {plural(len(kinds) - MAX_KINDS, 'more kind')}" if len(kinds) > MAX_KINDS else ""
        return "; ".join(told[:MAX_KINDS]) + more
    return _ends_of(members, drawn, front)


def _best_of(kind: str, members: pd.DataFrame, front: Front) -> str:
    """The best y of points that may be compared, and where it was."""
    best = members.loc[_best(members["y"], front.y)]
    where = _describe(best, varying(members))
    return f"{kind}: {_quantity(front.y, best['y'])}" + (f" with {where}" if where else "")


def _ends_of(members: pd.DataFrame, drawn: pd.DataFrame, front: Front) -> str:
    """The two ends of a front and what differs between them."""
    x, y = front.x, front.y
    most_y = members.loc[_best(members["y"], y)]
    most_x = members.loc[_best(members["x"], x)]
    axes = [name for name in _axes(members) if most_x[name] != most_y[name]]
    if most_x["trial_id"] == most_y["trial_id"] or not axes:
        where = _describe(most_y, varying(drawn))
        both = f"{_quantity(y, most_y['y'])} and {_quantity(x, most_y['x'])}"
        return f"One configuration is best on both axes: {both}" + (
            f" with {where}" if where else ""
        )
    shared = _describe(most_y, [name for name in varying(drawn) if name not in axes])
    return (
        f"{_quantity(y, most_y['y'])} with {_describe(most_y, axes)}; "
        f"{_quantity(x, most_x['x'])} with {_describe(most_x, axes)}"
        + (f"; both with {shared}" if shared else "")
    )


def axis_title(axis: Axis, arrows: Mapping[str, str], *, log: bool = False) -> str:
    """Label, unit and an arrow that points the good way; below them statistic, basis and `log`.

    `arrows` is ACROSS or UP.
    """
    return metric_title(axis.metric, arrows, log=log, direction=axis.direction)


def metric_words(metric: str) -> str:
    """A metric inside a sentence: abbreviations keep their capitals."""
    label = METRICS[metric].label
    return label if label[:2].isupper() else label[0].lower() + label[1:]


def spec_of(metric: str) -> MetricSpec:
    """The definition of `metric`; KeyError for a name that is none."""
    return METRICS[metric]
