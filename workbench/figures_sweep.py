"""What each knob does: cells of two axes, effects of every axis, lines that cross or do not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.catalogue import METRICS
from workbench.columns import words_of
from workbench.figures_chart import (
    Series,
    add_series,
    chart,
    colours,
    is_simulated,
    metric_title,
    name_axes,
    nullable,
    plain_title,
    texts_safe,
)
from workbench.figures_marks import metric_words, stamp
from workbench.figures_range import hold_range
from workbench.figures_ratios import best_rows, levels, varied
from workbench.figures_text import (
    MISSING,
    axis_phrase,
    axis_words,
    in_order,
    interval,
    number,
    plural,
    safe,
    samples,
    samples_words,
    short,
    value_text,
)
from workbench.figures_theme import MAX_GROUPS, Look, ink

RAMP = [[0.0, "#eef4fa"], [0.35, "#9cc6e3"], [0.7, "#3d8fc4"], [1.0, "#0a4a7a"]]
DARK_RAMP = [[0.0, "#1a2836"], [0.35, "#1d4d75"], [0.7, "#3d8fc4"], [1.0, "#a8d0ea"]]
MAX_CELL_TEXT = 80  # cells; above this the numbers are in the hover alone


@dataclass(frozen=True, kw_only=True)
class Cells:
    """The best valid point at every pair of values of two axes, all other axes free."""

    metric: str
    across: str  # columns
    up: str | None
    rows: pd.DataFrame  # across, up, value, low, high, n, where, trial_id, why

    @property
    def measured(self) -> pd.DataFrame:
        """The cells that have a number."""
        return self.rows[np.isfinite(self.rows["value"])]


def cells(points: pd.DataFrame, across: str, up: str | None, metric: str) -> Cells:
    """One row a pair of values, in their order; `why` says why a cell has no number."""
    columns = [name for name in (across, up) if name is not None]
    direction = str(METRICS[metric].direction)
    found = best_rows(points, columns, metric, direction)
    others = [name for name in varied(points) if name not in columns]
    rows = []
    for key in _keys(points, columns):
        row = {"across": key[0], "up": key[1] if up else ""}
        best = found.get(key)
        rows.append(row | (_number(best, metric, others) if best is not None else {
            "value": np.nan, "low": np.nan, "high": np.nan, "n": 0, "where": "", "trial_id": "",
            "why": _why_not(points, columns, key, metric),
        }))  # fmt: skip
    names = ("across", "up", "value", "low", "high", "n", "where", "trial_id", "why")
    table = pd.DataFrame(rows, columns=list(names))
    return Cells(metric=metric, across=across, up=up, rows=table)


def _keys(points: pd.DataFrame, columns: list[str]) -> list[tuple[str, ...]]:
    first = levels(points, columns[0])
    if len(columns) == 1:
        return [(value,) for value in first]
    return [(value, other) for other in levels(points, columns[1]) for value in first]


def _number(row: pd.Series, metric: str, others: list[str]) -> dict[str, object]:
    return {
        "value": float(row[metric]),
        "low": float(row[f"{metric}.low"]),
        "high": float(row[f"{metric}.high"]),
        "n": samples(row[f"{metric}.n"]),
        "where": ", ".join(axis_phrase(name, value_text(row[name])) for name in others),
        "trial_id": str(row["trial_id"]),
        "why": "",
    }


def _why_not(points: pd.DataFrame, columns: list[str], key: tuple[str, ...], metric: str) -> str:
    here = points
    for name, value in zip(columns, key, strict=True):
        here = here[words_of(here[name]) == value]
    if here.empty:
        return "the plan has no such point, or it is not measured yet"
    told = [why for why in here["reason"] if isinstance(why, str)]
    told += [why for why in here.get(f"{metric}.reason", ()) if isinstance(why, str)]
    return told[0] if told else "not measured"


def heat_map(points: pd.DataFrame, found: Cells, *, look: Look) -> go.Figure:
    """The number and its interval in each cell; the further from the page's own, the better."""
    spec, rows = METRICS[found.metric], found.rows
    figure = chart(look, _best_cell(found), stamp(points), _free_words(points, found), _gaps(rows))
    columns, lines = list(dict.fromkeys(rows["across"])), list(dict.fromkeys(rows["up"]))
    shape = (len(lines), len(columns))
    values = rows["value"].to_numpy(float).reshape(shape)
    figure.add_trace(
        go.Heatmap(
            x=texts_safe(columns),
            y=texts_safe(lines),
            z=[nullable(line) for line in values],
            text=np.array(_cell_texts(rows), dtype=object).reshape(shape).tolist(),
            texttemplate="%{text}",
            hovertext=np.array(_cell_hovers(found), dtype=object).reshape(shape).tolist(),
            hoverinfo="text",
            colorscale=DARK_RAMP if look.dark else RAMP,
            reversescale=str(spec.direction) == "min",
            showscale=False,
            xgap=2,
            ygap=2,
        )
    )
    _missing_cells(figure, rows, dark=look.dark)
    up = plain_title(axis_words(found.up)) if found.up else ""
    name_axes(figure, plain_title(axis_words(found.across)), up, dark=look.dark)
    figure.update_xaxes(type="category", showgrid=False)
    figure.update_yaxes(type="category", showgrid=False, showticklabels=found.up is not None)
    figure.update_layout(uirevision="heat")
    return figure


def _best_cell(found: Cells) -> str:
    rows, spec = found.measured, METRICS[found.metric]
    if rows.empty:
        return f"No valid point has {metric_words(found.metric)}"
    place = rows["value"].idxmin() if str(spec.direction) == "min" else rows["value"].idxmax()
    best = rows.loc[place]
    where = [axis_phrase(found.across, best["across"])]
    where += [axis_phrase(found.up, best["up"])] if found.up else []
    value = f"{number(best['value'])} {spec.unit} at {', '.join(where)}"
    return f"Best {metric_words(found.metric)}: {value}"


def _free_words(points: pd.DataFrame, found: Cells) -> str:
    free = [axis_words(n) for n in varied(points) if n not in (found.across, found.up)]
    return f"each cell is the best over {', '.join(free)}" if free else ""


def _gaps(rows: pd.DataFrame) -> str:
    count = int((~np.isfinite(rows["value"])).sum())
    return f"{plural(count, 'cell')} without a valid point" if count else ""


def _cell_texts(rows: pd.DataFrame) -> list[str]:
    if len(rows) > MAX_CELL_TEXT:
        return [""] * len(rows)
    return [
        ""
        if not np.isfinite(row.value)
        else number(row.value) + f"<br>{interval(row.low, row.high) or samples_words(row.n)}"
        for row in rows.itertuples()
    ]


def _cell_hovers(found: Cells) -> list[str]:
    unit = METRICS[found.metric].unit
    texts = []
    for row in found.rows.itertuples():
        head = safe(axis_phrase(found.across, short(row.across, 40)))
        head += f", {safe(axis_phrase(found.up, short(row.up, 40)))}" if found.up else ""
        span = interval(row.low, row.high)
        body = f"{MISSING} {safe(short(row.why, 90))}"
        if np.isfinite(row.value):
            body = f"<b>{number(row.value)}</b> {safe(unit)}, {samples_words(row.n)}"
            body += f"<br>95 % interval {span}" if span else ""
            body += f"<br>with {safe(short(row.where, 90))}" if row.where else ""
        texts.append(f"{head}<br>{body}")
    return texts


def _missing_cells(figure: go.Figure, rows: pd.DataFrame, *, dark: bool) -> None:
    """A heat map shows nothing over a hole: a dash with the reason stands there."""
    holes = rows[~np.isfinite(rows["value"])]
    if holes.empty:
        return
    figure.add_trace(
        go.Scatter(
            x=texts_safe(holes["across"]),
            y=texts_safe(holes["up"]),
            mode="text",
            text=[MISSING] * len(holes),
            textfont={"color": ink(dark=dark).muted},
            hovertext=[safe(short(why, 90)) for why in holes["why"]],
            hoverinfo="text",
            showlegend=False,
        )
    )


def interaction_lines(points: pd.DataFrame, found: Cells, *, look: Look) -> go.Figure:
    """The same cells as lines: they run side by side where the two axes do not depend."""
    told = (stamp(points), _free_words(points, found))
    figure = chart(look, _best_by_line(found), *told)
    paint = colours(found.rows["up"])
    names = list(dict.fromkeys(found.rows["up"]))[:MAX_GROUPS]
    for name in names:
        rows = found.rows[found.rows["up"] == name]
        figure_rows = Cells(metric=found.metric, across=found.across, up=found.up, rows=rows)
        add_series(
            figure,
            Series(
                name=name,
                colour=paint[name],
                x=rows["across"].tolist(),
                y=rows["value"].tolist(),
                low=rows["low"].tolist(),
                high=rows["high"].tolist(),
                hover=_cell_hovers(figure_rows),
                dashed=is_simulated(points),
                keys=rows["trial_id"].tolist(),
            ),
        )
    title = plain_title(axis_words(found.across))
    name_axes(figure, title, metric_title(found.metric), dark=look.dark)
    order = list(dict.fromkeys(found.rows["across"]))  # a line may lack the first of them
    figure.update_xaxes(type="category", categoryorder="array", categoryarray=texts_safe(order))
    figure.update_yaxes(rangemode="tozero")
    hold_range(figure, zero=True)
    if found.up:
        figure.update_layout(legend={"title": {"text": safe(axis_words(found.up)) + "  "}})
    figure.update_layout(uirevision="lines")
    return figure


def _best_by_line(found: Cells) -> str:
    """Where each line is best; values that its intervals do not tell apart are named together."""
    rows = found.measured
    if rows.empty:
        return f"No valid point has {metric_words(found.metric)}"
    best = {str(name): _best_of(part, found) for name, part in rows.groupby("up", sort=False)}
    words = axis_words(found.across)
    if len(set(best.values())) == 1:
        every = f" whatever the {axis_words(found.up)}" if found.up and len(best) > 1 else ""
        return f"Best {words}: {next(iter(best.values()))}{every}"
    told = [f"{best[name]} at {axis_phrase(found.up or '', name)}" for name in in_order(best)]
    return f"The best {words} depends: {', '.join(told[:4])}"


def _best_of(part: pd.DataFrame, found: Cells) -> str:
    least = str(METRICS[found.metric].direction) == "min"
    top = part.loc[part["value"].idxmin() if least else part["value"].idxmax()]
    alike = [
        row.across
        for row in part.itertuples()
        if number(row.value) == number(top["value"])
        or (row.low <= top.high and row.high >= top.low)
    ]
    return " or ".join(alike)
