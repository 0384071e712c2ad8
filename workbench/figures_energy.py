"""Power over time, and energy a token by its two measures beside each other."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.catalogue import METRICS
from workbench.figures_chart import (
    Series,
    add_series,
    add_window,
    chart,
    name_axes,
    plain_title,
)
from workbench.figures_facts import by_axes, cell_words
from workbench.figures_text import number, plural
from workbench.figures_theme import MAX_GROUPS, OKABE_ITO, Look

ENERGY = (
    "energy_j_token", "energy_j_token_integral", "energy_agreement", "energy_j_token_net",
    "energy_j_total_token", "energy_j_request",
)  # fmt: skip
"""By the counter, by the integral of power, their ratio, net of idle, and other bases."""
COSTS = ("cost_usd_mtok_output", "cost_usd_mtok_input", "cost_usd_mtok_total")


def power_over_time(
    telemetry: pd.DataFrame, window_s: tuple[float, float] | None, *, look: Look
) -> tuple[go.Figure, pd.DataFrame]:
    """Power of each device by the samples of one trial, the measured window shaded."""
    rows = telemetry[telemetry["device_power_w"].notna()] if len(telemetry) else telemetry
    figure = chart(look, _power_finding(rows))
    devices = sorted(rows["device_index"].dropna().unique()) if len(rows) else []
    for place, device in enumerate(devices[:MAX_GROUPS]):
        part = rows[rows["device_index"] == device].sort_values("time_s")
        hover = [
            f"device {int(device)} at {number(time)} s: <b>{number(power)}</b> W"
            for time, power in zip(part["time_s"], part["device_power_w"], strict=True)
        ]
        add_series(figure, Series(
            name=f"device {int(device)}", colour=OKABE_ITO[place], x=part["time_s"].tolist(),
            y=part["device_power_w"].tolist(), hover=hover, steps=True,
        ))  # fmt: skip
    name_axes(
        figure,
        plain_title("time since the trial began", "s"),
        plain_title("power", "W", "↓"),
        dark=look.dark,
    )
    add_window(figure, window_s, dark=look.dark)
    figure.update_yaxes(rangemode="tozero")
    figure.update_layout(uirevision="power", showlegend=len(devices) > 1)
    return figure, rows


def _power_finding(rows: pd.DataFrame) -> str:
    if rows.empty:
        return "No device told its power in this trial"
    devices = rows.groupby("device_index")["device_power_w"]
    told = f"at most {number(float(rows['device_power_w'].max()))} W a device"
    return f"{plural(len(devices), 'device')}, {told}"


def metric_rows(points: pd.DataFrame, names: tuple[str, ...]) -> pd.DataFrame:
    """One row a point: its words and, for each metric that exists, value, low, high, reason."""
    shown = [name for name in names if name in points]
    points = by_axes(points)
    rows = points[["trial_id", "state", "valid", "repeats"]].copy()
    rows["where"] = cell_words(points, points)
    for name in shown:
        for part in ("", ".low", ".high", ".reason"):
            rows[name + part] = points.get(name + part, np.nan)
    return rows


def why_none(points: pd.DataFrame, name: str) -> str | None:
    """Why no valid point has the metric; None where one has."""
    if name not in points:
        return f"{METRICS[name].label} was not measured in this run"
    valid = points[points["valid"].astype(bool)]
    if valid[name].notna().any():
        return None
    told = valid.get(f"{name}.reason", pd.Series(dtype=object)).dropna()
    return str(told.iloc[0]) if len(told) else "no valid point"
