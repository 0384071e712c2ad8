"""The metrics of one trial: the ten that matter most, then all others, then what each means."""

from __future__ import annotations

import pandas as pd
import streamlit as st

import workbench as wb
from dashboards import markup, parts
from dashboards.markup import Cell, figure_cell, text
from workbench.figures import interval, metric_table, number, plural

KEY_METRICS = (
    "output_tok_s_device",
    "tok_s_user",
    "ttft_s_p50",
    "tpot_s_p50",
    "itl_s_p50",
    "e2e_s_p50",
    "acceptance_length",
    "error_rate",
    "completed_requests",
    "memory_peak_bytes",
)
COUNTED = ("sum", "count", "max")  # statistics whose values are whole numbers
GIGA = 1e9


def show(trial: wb.TrialRecord) -> None:
    """Numbers with intervals and sample sizes; the less asked for and the missing are folded."""
    found = metric_table(trial)
    found = found[~found["name"].isin(doubled(trial))]
    measured = found[found["value"].notna()]
    if measured.empty:
        parts.html(markup.note("Nothing was measured."))
        return
    key = measured["name"].isin(KEY_METRICS)
    parts.html(numbers_table(measured[key]))
    rest, missing = measured[~key], found[found["value"].isna()]
    if not rest.empty:
        with st.expander(plural(len(rest), "more metric")):
            parts.html(numbers_table(rest))
    if not missing.empty:
        with st.expander(f"{plural(len(missing), 'metric')} without a number, and why"):
            parts.html(_missing_table(missing))
    with st.expander("What each metric means"):
        parts.html(_definitions(found))


def doubled(trial: wb.TrialRecord) -> set[str]:
    """Times from the schedule that say what the times from sending say: all of a closed loop's."""
    metrics = trial.metrics
    return {
        name
        for name, value in metrics.items()
        if "_sched_" in name and metrics.get(name.replace("_sched_", "_")) == value
    }


def numbers_table(rows: pd.DataFrame) -> str:
    """Rows of `metric_table` with a value, each in a unit that is easy to read."""
    return markup.table(
        ("Metric", "Value", "95 % interval, within run", "Unit", "n"),
        [_numbers(row["name"], row) for _, row in rows.iterrows()],
    )


def _numbers(name: str, row: pd.Series) -> tuple[Cell, ...]:
    factor, unit = readable(wb.METRICS[name], row["value"])
    value, low, high = (
        None if pd.isna(row[part]) else row[part] * factor for part in ("value", "low", "high")
    )
    whole = unit != "GB" and wb.METRICS[name].statistic in COUNTED and value == round(value)
    shown = f"{value:,.0f}" if whole else number(value)
    return (
        text(row["metric"], "name", row["definition"]),
        Cell(html=shown, kind="num"),
        Cell(html=interval(low, high), kind="num soft"),
        text(unit, "soft fixed"),
        text(f"{row['n']:,}", "num soft"),
    )


def readable(spec: wb.MetricSpec, value: float) -> tuple[float, str]:
    """What to multiply by, and the unit it gives: ms below one second, GB for bytes."""
    if spec.unit == "s" and abs(value) < 1:
        return 1000.0, "ms"
    if spec.unit == "B":
        return 1 / GIGA, "GB"
    return 1.0, spec.unit


def _missing_table(rows: pd.DataFrame) -> str:
    cells = [
        (
            text(row.metric, "name", row.definition),
            _bound(row.name, row.low) if pd.notna(row.low) else figure_cell(None),
            text(row.reason, "free soft"),
        )
        for row in rows.itertuples()
    ]
    return markup.table(("Metric", "Value", "Why there is none"), cells)


def _bound(name: str, low: float) -> Cell:
    """What few samples say of a quantile: it is at least so much, in 97.5 of 100 cases."""
    factor, unit = readable(wb.METRICS[name], low)
    return Cell(html=f"{interval(low * factor, None)} {unit}".strip(), kind="num soft")


def _definitions(rows: pd.DataFrame) -> str:
    cells = [(text(row.metric, "name"), text(row.definition, "free")) for row in rows.itertuples()]
    return markup.table(("Metric", "Definition"), cells)
