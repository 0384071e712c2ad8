"""The trial in flight, second by second: tokens, waits and requests, and the devices beside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from workbench.figures_chart import chart, nullable, plain_title
from workbench.figures_text import number, plural, safe
from workbench.figures_theme import OKABE_ITO, Look, ink, with_alpha

if TYPE_CHECKING:
    from experiments.records import TelemetrySample
    from experiments.watch import Second

PANELS = (
    ("output_tokens", "output tokens", "tok/s"),
    ("ttft_s", "mean wait for the first token", "s"),
    ("in_flight", "requests in flight", ""),
)
"""Column, words and unit of each panel."""
GIGA = 1e9


def seconds_table(seconds: Iterable[Second]) -> pd.DataFrame:
    """One row a second from the first to the newest: 0 tokens where nothing came."""
    found = {row.second: row for row in seconds}
    if not found:
        return pd.DataFrame(columns=["second", *(name for name, _, _ in PANELS)])
    rows = []
    flying = 0
    for second in range(min(found), max(found) + 1):
        row = found.get(second)
        flying = row.in_flight if row else flying
        rows.append({
            "second": second,
            "output_tokens": float(row.output_tokens if row else 0),
            "ttft_s": float("nan") if row is None or row.ttft_s is None else row.ttft_s,
            "in_flight": float(flying),
        })  # fmt: skip
    return pd.DataFrame(rows)


def seconds_figure(seconds: Iterable[Second], *, look: Look) -> go.Figure:
    """Three panels over one clock: tokens of each second, waits, requests in flight."""
    rows = seconds_table(seconds)
    dressed = chart(look, _finding(rows), "one mark a second, warm-up included")
    figure = make_subplots(rows=len(PANELS), cols=1, shared_xaxes=True, vertical_spacing=0.13)
    figure.update_layout(dressed.layout)
    room = 18  # for the name of the first panel
    margin, height = dressed.layout.margin, dressed.layout.height
    figure.update_layout(margin={"t": margin.t + room}, height=height + room)
    axis = dressed.layout.xaxis.to_plotly_json()
    for place, (name, words, unit) in enumerate(PANELS, start=1):
        figure.add_trace(_panel(rows, name, words, OKABE_ITO[place - 1]), row=place, col=1)
        looks = {"rangemode": "tozero", "nticks": 4, "gridcolor": axis["gridcolor"]}
        figure.update_yaxes(**looks, tickfont=axis["tickfont"], zeroline=False, row=place, col=1)
        figure.update_xaxes(tickfont=axis["tickfont"], showgrid=False, zeroline=False, row=place)
        _name_panel(figure, place, plain_title(words, unit), dark=look.dark)
    named = {"text": plain_title("time since the trial began", "s"), "font": axis["tickfont"]}
    figure.update_xaxes(title=named, row=len(PANELS))
    figure.update_layout(showlegend=False, uirevision="live", hovermode="x")
    return figure


def _panel(rows: pd.DataFrame, name: str, words: str, colour: str) -> go.Scatter:
    return go.Scatter(
        x=rows["second"].tolist(),
        y=nullable(rows[name]),
        mode="lines+markers",
        marker={"size": 4, "color": colour},
        line={"width": 1.5, "color": colour},
        connectgaps=True,
        fill="tozeroy",
        fillcolor=with_alpha(colour, 0.12),
        name=words,
        hoverinfo="text",
        hovertext=[f"{safe(words)} <b>{number(value)}</b>" for value in rows[name]],
    )


def _name_panel(figure: go.Figure, place: int, title: str, *, dark: bool) -> None:
    figure.add_annotation(
        text=title,
        x=0,
        y=1,
        xref="x domain" if place == 1 else f"x{place} domain",
        yref="y domain" if place == 1 else f"y{place} domain",
        xanchor="left",
        yanchor="bottom",
        showarrow=False,
        font={"size": 11, "color": ink(dark=dark).muted},
    )


def _finding(rows: pd.DataFrame) -> str:
    if rows.empty:
        return "Nothing has come from the trial in flight yet"
    last = rows.iloc[-2] if len(rows) > 1 else rows.iloc[-1]  # the newest second is not over
    return (
        f"{number(last['output_tokens'])} tok/s in the newest whole second, "
        f"{plural(int(last['in_flight']), 'request')} in flight"
    )


def device_rows(samples: Sequence[TelemetrySample]) -> list[Mapping[str, float | str | None]]:
    """What each device says now, one mapping of words to numbers a device; host values first."""
    host = [s for s in samples if s.device_index is None]
    found: list[Mapping[str, float | str | None]] = []
    for sample in [*host[-1:], *(s for s in samples if s.device_index is not None)]:
        named = "host" if sample.device_index is None else f"device {sample.device_index}"
        memory = sample.memory_bytes if sample.device_index is None else sample.device_memory_bytes
        busy = sample.cpu_percent
        if sample.device_index is not None:
            busy = sample.device_utilisation_percent
        found.append({
            "device": named,
            "Power (W)": sample.device_power_w,
            "Clock (MHz)": sample.device_clock_mhz,
            "Memory (GB)": None if memory is None else memory / GIGA,
            "Busy (%)": busy,
            "Temperature (°C)": sample.device_temperature_c,
            "Throttled by": ", ".join(sample.throttle_reasons or ()) or None,
        })  # fmt: skip
    return found
