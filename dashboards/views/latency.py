"""Latency: who waits, and when?"""

from __future__ import annotations

import streamlit as st

import workbench as wb
from dashboards import address, controls, fronts, markup, metric_view, parts, reading, trial_view
from workbench.figures import (
    LATENCY_FAMILIES,
    Look,
    chunk_sizes,
    distributions,
    interval,
    ladder,
    number,
    tokens_over_time,
)

MAX_BESIDE = 3
STEPS = ("mean", "p50", "p90", "p99")


def main() -> None:
    """The waits of one trial, beside those of a few others."""
    summary = parts.opened()
    if summary is None:
        return
    reader = reading.reader(summary.run_id)
    with st.sidebar:
        trial_id = controls.trial(reader.trials())
        beside = _beside(reader, trial_id) if trial_id else []
        family = address.choose(
            "Latency", list(LATENCY_FAMILIES), "family", default="ttft_s",
            words=lambda name: LATENCY_FAMILIES[name][0],
        )  # fmt: skip
    parts.live(lambda: _body(summary.run_id, trial_id, beside, family), summary.run_id)


def _beside(reader: reading.Reader, trial_id: str) -> list[str]:
    """Other trials to draw beside the chosen one."""
    trials = reader.trials()
    rows = trials[trials["state"].isin(["ok", "invalid"]) & (trials["trial_id"] != trial_id)]
    names = controls.trial_names(trials, rows.head(controls.MAX_TRIALS))
    asked = [name for name in (address.parameter("beside") or "").split(",") if name in names]
    picked = st.multiselect(
        "Beside it", list(names), default=asked[:MAX_BESIDE], format_func=names.__getitem__,
        max_selections=MAX_BESIDE, placeholder="none", key="latency.beside",
    )  # fmt: skip
    address.remember("beside", ",".join(picked) or None)
    return picked


def _body(run_id: str, trial_id: str | None, beside: list[str], family: str) -> None:
    reader = reading.reader(run_id)
    summary = reader.refresh()
    parts.heading(summary, "Who waits, and when?")
    if trial_id is None:
        parts.html(markup.note(fronts.sentence(reader.points(), None, summary)))
        trial_view.failures(reader.trials(), summary)
        return
    every = reader.trials()
    rows = every[every["trial_id"].isin([trial_id, *beside])]
    names = controls.trial_names(every, rows)
    found = {names[name]: reading.trial(run_id, name) for name in (trial_id, *beside)}
    first = reading.trial(run_id, trial_id)
    look = Look(subtitle=_subtitle(first, names[trial_id]), dark=parts.is_dark(), height=300)
    left, right = st.columns(2, gap="medium")
    with left:
        parts.figure(*distributions(found, family, look=look), "distribution")
    with right:
        _ladder(first)
    parts.figure(*tokens_over_time(first, look=look), "rate")
    trial_view.requests(reader, first)
    parts.figure(*chunk_sizes(first, look=look), "chunks")


def _subtitle(trial: wb.TrialRecord, name: str) -> str:
    return ", ".join([*trial.labels, name])


def _ladder(trial: wb.TrialRecord) -> None:
    found = ladder(trial)
    doubled = metric_view.doubled(trial)
    rows = [
        (
            markup.text(row["label"], "name whole", row["definition"]),
            *(_step(row[name]) for name in STEPS),
        )
        for _, row in found.iterrows()
        if f"{row['family']}_mean" not in doubled
    ]
    parts.html(
        markup.section(f"Percentiles with 95 % intervals within run ({found.attrs['unit']})")
    )
    parts.html(markup.table(("", *STEPS), rows, stacked=True))


def _step(value: object) -> markup.Cell:
    """A quantile with its interval below; grey with its lower bound alone where n is too small."""
    shown, low, high, n, reason = (
        getattr(value, name, None) for name in ("value", "low", "high", "n", "reason")
    )
    span = interval(low, high)
    told = reason or (f"95 % interval {span}, within run, n={n:,}" if span else f"n={n or 0:,}")
    if shown is None and span:
        return markup.Cell(html=markup.plain(span), kind="num soft", title=str(told))
    small = f"<small>{markup.plain(span)}</small>" if span else ""
    return markup.Cell(html=f"{number(shown)}{small}", kind="num", title=str(told))


if __name__ == "__main__":
    main()
