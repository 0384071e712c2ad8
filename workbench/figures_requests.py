"""The requests of one trial as a timeline: who waited, and when."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.figures_chart import add_window
from workbench.figures_marks import CROWDED_FROM
from workbench.figures_text import number, plural, safe, short
from workbench.figures_theme import OKABE_ITO, Look, base_figure, ink

WAIT, TOKENS, FAILED, STALL = OKABE_ITO[1], OKABE_ITO[0], OKABE_ITO[3], OKABE_ITO[4]
STALL_FACTOR = 5  # a gap between chunks that is so many times the trial's median gap
LEAST_QUEUED_S = 0.001


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """The measured requests of a trial in the order they were sent, seconds since its start."""

    rows: pd.DataFrame
    intended_s: np.ndarray
    sent_s: np.ndarray
    first_s: np.ndarray  # NaN where no token came
    ended_s: np.ndarray
    failed: np.ndarray


def requests_timeline(
    requests: pd.DataFrame,
    window_s: tuple[float, float] | None = None,
    *,
    look: Look | None = None,
) -> go.Figure:
    """One line a request: queued, waiting for the first token, receiving tokens, stalled.

    `requests` has the columns of `Run.requests()`. Warm-up requests are left out and counted; the
    measured window is shaded. Nothing sent gives an empty figure that says so.
    """
    look = look or Look()
    timeline = _timeline(requests)
    figure = base_figure(
        _finding(timeline),
        _subtitle(requests, look),
        dark=look.dark,
        height=look.height,
        columns=look.columns,
    )
    width = 6 if len(timeline.rows) <= 30 else 3 if len(timeline.rows) <= 120 else 1.2
    waited_until = np.where(np.isfinite(timeline.first_s), timeline.first_s, timeline.ended_s)
    late = timeline.sent_s - timeline.intended_s > LEAST_QUEUED_S
    if late.any():
        queued = np.where(late, timeline.intended_s, np.nan)
        muted = ink(dark=look.dark).muted
        figure.add_trace(_lines(queued, timeline.sent_s, "queued at the client", muted, width))
    figure.add_trace(_lines(timeline.sent_s, waited_until, "waiting", WAIT, width))
    figure.add_trace(_lines(timeline.first_s, timeline.ended_s, "receiving tokens", TOKENS, width))
    _add_stalls(figure, timeline, width)
    figure.add_trace(_first_tokens(timeline))
    _add_failures(figure, timeline)
    add_window(figure, window_s, dark=look.dark)
    figure.update_xaxes(title={"text": "time since the trial began (s)"})
    figure.update_yaxes(title={"text": "request, in the order sent"}, autorange="reversed")
    figure.update_layout(uirevision="requests", hovermode="closest")
    return figure


def _timeline(requests: pd.DataFrame) -> Timeline:
    measured = requests[~requests["warm_up"].astype(bool) & requests["sent_s"].notna()]
    rows = measured.sort_values("sent_s", kind="stable").reset_index(drop=True)
    sent = rows["sent_s"].to_numpy(float)
    first = np.array([_first(times) for times in rows["chunk_time_s"]], dtype=float)
    ended = rows["ended_s"].to_numpy(float)
    return Timeline(
        rows=rows,
        intended_s=rows["intended_s"].to_numpy(float),
        sent_s=sent,
        first_s=first,
        ended_s=np.where(np.isfinite(ended), ended, sent),
        failed=rows["error"].notna().to_numpy(bool),
    )


def _add_stalls(figure: go.Figure, timeline: Timeline, width: float) -> None:
    """Gaps between the chunks of a request that are far longer than usual."""
    times = [np.asarray(found, dtype=float) for found in timeline.rows["chunk_time_s"]]
    gaps = [np.diff(found) for found in times]
    every = np.concatenate(gaps) if gaps else np.empty(0)
    limit_s = STALL_FACTOR * float(np.median(every)) if len(every) else 0.0
    if limit_s <= 0 or not (every > limit_s).any():
        return
    x: list[float | None] = []
    y: list[int] = []
    for place, (found, gap) in enumerate(zip(times, gaps, strict=True), start=1):
        for k in np.flatnonzero(gap > limit_s):
            x += [float(found[k]), float(found[k + 1]), None]
            y += [place] * 3
    name = f"stalled: gap over {STALL_FACTOR} × the median"
    line = {"color": STALL, "width": width}
    figure.add_trace(go.Scatter(x=x, y=y, mode="lines", line=line, name=name, hoverinfo="skip"))


def _first(times: object) -> float:
    return float(times[0]) if times is not None and len(times) else float("nan")


def _finding(timeline: Timeline) -> str:
    if timeline.rows.empty:
        return "No measured request was sent"
    waits = timeline.first_s - timeline.sent_s
    count = plural(len(waits), "request")
    if not np.isfinite(waits).any():
        return f"{count}, none received a token"
    slowest = number(float(np.nanmax(waits)))
    return f"{count}; the longest wait for a first token was {slowest} s"


def _subtitle(requests: pd.DataFrame, look: Look) -> str:
    warm = int(requests["warm_up"].sum()) if len(requests) else 0
    parts = [look.subtitle] if look.subtitle else []
    return "; ".join([*parts, f"{plural(warm, 'warm-up request')} not drawn"] if warm else parts)


def _lines(start: np.ndarray, end: np.ndarray, name: str, colour: str, width: float) -> go.Scatter:
    x = np.stack([start, end, np.full_like(start, np.nan)], axis=1).ravel()
    y = np.repeat(np.arange(1, len(start) + 1), 3)
    return go.Scatter(
        x=_nullable(x),
        y=y.tolist(),
        mode="lines",
        line={"color": colour, "width": width},
        name=name,
        hoverinfo="skip",
        connectgaps=False,
    )


def _nullable(values: np.ndarray) -> list[float | None]:
    return [value if value == value else None for value in values.tolist()]


def _first_tokens(timeline: Timeline) -> go.Scatter:
    drawn = np.isfinite(timeline.first_s)
    rows = timeline.rows[drawn]
    waits = (timeline.first_s - timeline.sent_s)[drawn]
    spans = (timeline.ended_s - timeline.sent_s)[drawn]
    cells = zip(
        rows["request_id"],
        rows["prompt_tokens"],
        rows["output_tokens"],
        waits.tolist(),
        spans.tolist(),
        strict=True,
    )
    kind = go.Scattergl if len(timeline.rows) > CROWDED_FROM else go.Scatter
    return kind(
        x=timeline.first_s[drawn].tolist(),
        y=(np.flatnonzero(drawn) + 1).tolist(),
        mode="markers",
        marker={"size": 5, "color": TOKENS},
        name="first token",
        showlegend=False,
        hoverinfo="text",
        hovertext=[
            f"request {safe(short(str(name), 40))}<br>first token after <b>{number(wait)}</b> s"
            f"<br>end to end {number(span)} s<br>{prompt:,} prompt and {output:,} output tokens"
            for name, prompt, output, wait, span in cells
        ],
    )


def _add_failures(figure: go.Figure, timeline: Timeline) -> None:
    if not timeline.failed.any():
        return
    rows = timeline.rows[timeline.failed]
    figure.add_trace(
        go.Scatter(
            x=timeline.ended_s[timeline.failed].tolist(),
            y=(np.flatnonzero(timeline.failed) + 1).tolist(),
            mode="markers",
            marker={"size": 9, "symbol": "x-thin", "line": {"width": 2, "color": FAILED}},
            name="failed",
            hoverinfo="text",
            hovertext=[
                f"request {safe(short(str(name), 40))} <b>failed</b><br>{safe(short(why, 90))}"
                for name, why in zip(rows["request_id"], rows["error"].astype(str), strict=True)
            ],
        )
    )
