"""One point of one plan over the runs of a store: did a commit make it slower?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.catalogue import METRICS
from workbench.figures_chart import Series, add_series, chart, metric_title, name_axes, plain_title
from workbench.figures_facts import cell_words
from workbench.figures_marks import metric_words
from workbench.figures_range import hold_range
from workbench.figures_text import number, plural, safe, short, span_words
from workbench.figures_theme import OKABE_ITO, Look, ink

RULE = "a change is marked where two runs' 95 % intervals do not overlap"
COLUMNS = (
    "run_id", "started_utc", "commit", "trial_id", "value", "low", "high", "n", "repeats", "valid",
    "reason", "change", "before",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a run of the plan has to tell: its points, when it began and at which commit."""

    run_id: str
    started_utc: str
    commit: str
    points: pd.DataFrame


def commit_of(environment: Mapping[str, object], code_version: str) -> str:
    """The commit in short with `+` for uncommitted changes; the code's hash where there is none."""
    sha = environment.get("git_sha")
    if not isinstance(sha, str):
        return code_version.rpartition("+")[2][:8] or "unknown"
    return sha[:8] + ("+" if environment.get("git_dirty") is True else "")


def cells_of(runs: list[Told]) -> dict[str, int]:
    """Each point of the runs in words -> in how many of them it is; those in most first."""
    found: dict[str, int] = {}
    for run in runs:
        for words in dict.fromkeys(_words(run.points)):
            found[words] = found.get(words, 0) + 1
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _words(points: pd.DataFrame) -> list[str]:
    return [words or "the only configuration" for words in cell_words(points, points)]


def trend(runs: list[Told], cell: str, metric: str) -> pd.DataFrame:
    """COLUMNS, one row a run that has the point, oldest first.

    `change` is `better`, `worse` or empty, by RULE, against the valid run before (`before`).
    """
    rows: list[dict[str, object]] = []
    last: dict[str, object] | None = None
    for run in sorted(runs, key=lambda told: (told.started_utc, told.run_id)):
        row = _row(run, cell, metric)
        if row is None:
            continue
        row |= {"change": _change(last, row, metric), "before": last["run_id"] if last else None}
        rows.append(row)
        last = row if row["valid"] and np.isfinite(float(str(row["value"]))) else last
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _row(run: Told, cell: str, metric: str) -> dict[str, object] | None:
    places = [place for place, words in enumerate(_words(run.points)) if words == cell]
    if not places or metric not in run.points:
        return None
    found = run.points.iloc[places[0]]
    told = [found["reason"], found.get(f"{metric}.reason")]
    return {
        "run_id": run.run_id,
        "started_utc": run.started_utc,
        "commit": run.commit,
        "trial_id": str(found["trial_id"]),
        "value": float(found[metric]),
        "low": float(found[f"{metric}.low"]),
        "high": float(found[f"{metric}.high"]),
        "n": int(np.nan_to_num(found[f"{metric}.n"])),
        "repeats": int(found["repeats"]),
        "valid": bool(found["valid"]),
        "reason": next((why for why in told if isinstance(why, str)), ""),
    }


def _change(before: dict[str, object] | None, row: dict[str, object], metric: str) -> str:
    if before is None or not row["valid"]:
        return ""
    old, new = ([float(str(one[k])) for k in ("low", "high")] for one in (before, row))
    if not np.isfinite([*old, *new]).all() or (new[0] <= old[1] and new[1] >= old[0]):
        return ""
    direction = str(METRICS[metric].direction)
    if direction == "none":
        return "changed"
    return "better" if (new[0] > old[1]) == (direction == "max") else "worse"


def trend_figure(rows: pd.DataFrame, metric: str, *, look: Look) -> go.Figure:
    """The metric over the runs in the order they began, with marks where it changed."""
    valid = rows[rows["valid"].astype(bool)]
    left_out = len(rows) - len(valid)
    told = f"{plural(left_out, 'run')} hollow: not valid" if left_out else ""
    figure = chart(look, _finding(rows, metric), RULE, told)
    names = [f"{row.commit}<br>{row.started_utc[5:16].replace('T', ' ')}" for row in
             rows.itertuples()]  # fmt: skip
    places = list(range(len(rows)))
    sound = rows["valid"].astype(bool).tolist()
    add_series(figure, Series(
        name="", colour=OKABE_ITO[0],
        x=[p for p, good in zip(places, sound, strict=True) if good],
        y=valid["value"].tolist(), low=valid["low"].tolist(), high=valid["high"].tolist(),
        hover=[_hover(row, metric) for row in valid.itertuples()],
        keys=valid["trial_id"].tolist(),
    ))  # fmt: skip
    _add_marks(figure, rows, metric, dark=look.dark)
    name_axes(figure, plain_title("commit and start of the run (UTC)"), metric_title(metric),
              dark=look.dark)  # fmt: skip
    figure.update_xaxes(tickvals=places, ticktext=names, range=[-0.5, max(0.5, len(rows) - 0.5)])
    figure.update_yaxes(rangemode="tozero")
    hold_range(figure, zero=True)
    figure.update_layout(uirevision="trend", showlegend=False)
    return figure


def _add_marks(figure: go.Figure, rows: pd.DataFrame, metric: str, *, dark: bool) -> None:
    """Hollow marks for what is not valid, rings for what changed."""
    looks = {
        "": (rows["valid"].eq(False) & rows["value"].notna(), "circle-open", ink(dark=dark).muted),
        "better": (rows["change"] == "better", "triangle-up", OKABE_ITO[2]),
        "worse": (rows["change"] == "worse", "triangle-down", OKABE_ITO[3]),
        "changed": (rows["change"] == "changed", "diamond", OKABE_ITO[1]),
    }
    for mask, symbol, colour in looks.values():
        places = np.flatnonzero(mask.to_numpy(bool))
        if len(places):
            figure.add_trace(go.Scatter(
                x=places.tolist(), y=rows["value"].iloc[places].tolist(), mode="markers",
                marker={"size": 14, "symbol": symbol, "color": colour},
                hoverinfo="text",
                hovertext=[_hover(row, metric) for row in rows.iloc[places].itertuples()],
            ))  # fmt: skip


def _hover(row: object, metric: str) -> str:
    value, low, high, repeats = (getattr(row, n) for n in ("value", "low", "high", "repeats"))
    span = span_words(low, high, repeats, metric)
    told = [
        f"<b>{number(value)}</b> {safe(METRICS[metric].unit)}, n={row.n:,}",
        f"95 % interval {span}" if span else "",
        f"{row.change} than the run before" if row.change else "",
        safe(short(str(row.reason), 90)),
        f"run {safe(row.run_id)}, commit {safe(row.commit)}",
    ]
    return "<br>".join(filter(None, told))


def _finding(rows: pd.DataFrame, metric: str) -> str:
    if len(rows) < 2:
        return f"{plural(len(rows), 'run')} of this point: nothing to hold it against yet"
    words = metric_words(metric)
    words = words[0].upper() + words[1:]
    changed = rows[rows["change"] != ""]
    if changed.empty:
        return f"{words} did not change for sure in {plural(len(rows), 'run')}"
    last = changed.iloc[-1]
    return f"{words} is {last['change']} since {last['commit']}"
