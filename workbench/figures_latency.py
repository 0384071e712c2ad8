"""Who waits, and when: distributions, tokens over time, and how many tokens come together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from experiments.measurement import succeeded, weighted_samples
from experiments.metric_specs import FAMILIES, QUANTILES
from experiments.records import MetricValue, RequestRecord, TrialRecord
from workbench.catalogue import METRICS
from workbench.figures_chart import (
    Series,
    add_level,
    add_series,
    add_window,
    chart,
    is_log,
    name_axes,
    plain_title,
)
from workbench.figures_text import number, plural, safe, short
from workbench.figures_theme import OKABE_ITO, Look, ink, with_alpha

POOLED = ("itl_s", "icl_s")  # many samples a request, so that they are not independent
MOST_STEPS = 400  # of a line; more samples are drawn at as many even shares
BINS = 60
NEARLY_ALIKE = 0.9  # of the largest sample: the axis starts at zero
NICE_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


def measured(trial: TrialRecord) -> list[RequestRecord]:
    """The requests that latencies are taken of."""
    return [r for r in trial.requests if not r.warm_up and r.sent_s is not None and succeeded(r)]


def distributions(
    trials: Mapping[str, TrialRecord], family: str, *, look: Look
) -> tuple[go.Figure, pd.DataFrame]:
    """The share of samples at most so long, one line a trial; and the drawn rows.

    The band holds the whole true line in 95 % of cases where samples are independent
    (Dvoretzky, Kiefer, Wolfowitz); pooled gaps are not, and have none.
    """
    label, _, _ = FAMILIES[family]
    tables = {name: _steps(trial, family) for name, trial in trials.items()}
    tables = {name: rows for name, rows in tables.items() if not rows.empty}
    rows = pd.concat(
        [table.assign(trial=name) for name, table in tables.items()] or [pd.DataFrame()],
        ignore_index=True,
    )
    band = "" if family in POOLED else "band: 95 % for the whole line"
    figure = chart(look, _spread(tables, label), _counts(tables), band)
    for place, (name, table) in enumerate(tables.items()):
        add_series(figure, _line(name, table, label, OKABE_ITO[place % len(OKABE_ITO)]))
    log = bool(len(rows)) and is_log(rows["seconds"].to_numpy(float))
    better = " better ←" + (", log scale" if log else "")
    name_axes(
        figure,
        plain_title(label, "s") + better,
        plain_title("share of samples at most so long", "%"),
        dark=look.dark,
    )
    figure.update_xaxes(type="log" if log else "linear")
    if len(rows) and rows["seconds"].min() > NEARLY_ALIKE * rows["seconds"].max():
        figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(range=[0, 102])
    figure.update_layout(uirevision=f"distribution-{family}", showlegend=len(tables) > 1)
    return figure, rows


def _steps(trial: TrialRecord, family: str) -> pd.DataFrame:
    values, counts = weighted_samples(family, measured(trial))
    if not len(values):
        return pd.DataFrame(columns=["seconds", "share", "low", "high", "n"])
    order = np.argsort(values)
    values, n = values[order], int(counts.sum())
    shares = np.cumsum(counts[order]) / n
    if len(values) > MOST_STEPS:
        places = np.searchsorted(shares, np.linspace(0, 1, MOST_STEPS)).clip(max=len(values) - 1)
        values, shares = values[places], shares[places]
    half = math.sqrt(math.log(2 / 0.05) / (2 * n)) if family not in POOLED else math.nan
    return pd.DataFrame({
        "seconds": values,
        "share": 100 * shares,
        "low": 100 * (shares - half).clip(min=0),
        "high": 100 * (shares + half).clip(max=1),
        "n": n,
    })  # fmt: skip


def _line(name: str, rows: pd.DataFrame, label: str, colour: str) -> Series:
    hover = [
        f"{safe(short(name, 60))}<br><b>{number(share)}</b> % within {number(seconds)} s of {label}"
        for seconds, share in zip(rows["seconds"], rows["share"], strict=True)
    ]
    return Series(
        name=name,
        colour=colour,
        x=rows["seconds"].tolist(),
        y=rows["share"].tolist(),
        low=rows["low"].tolist(),
        high=rows["high"].tolist(),
        hover=hover,
        steps=True,
    )


def _spread(tables: Mapping[str, pd.DataFrame], label: str) -> str:
    if not tables:
        return f"No sample of {label}"
    rows = next(iter(tables.values()))
    middle = rows.loc[(rows["share"] >= 50).idxmax(), "seconds"]
    told = f"{label}: half within {number(middle)} s, all within {number(rows['seconds'].max())} s"
    return told if len(tables) == 1 else f"{told} in the first of {len(tables)} trials"


def _counts(tables: Mapping[str, pd.DataFrame]) -> str:
    return ", ".join(f"n={int(rows['n'].iloc[0]):,}" for rows in tables.values())


def ladder(trial: TrialRecord) -> pd.DataFrame:
    """family, label, definition, then mean, p50, p90, p99: a MetricValue each, or None.

    The unit of all is in `.attrs["unit"]`: ms where nothing takes a second, else s.
    """
    rows = []
    for family, (label, _, definition) in FAMILIES.items():
        found = {name: trial.metrics.get(f"{family}_{name}") for name in ("mean", *QUANTILES)}
        if any(value is not None for value in found.values()):
            rows.append({"family": family, "label": label, "definition": definition, **found})
    names = ["family", "label", "definition", "mean", *QUANTILES]
    table = pd.DataFrame(rows, columns=names, dtype=object)
    steps = ["mean", *QUANTILES]
    found = [cell.value for name in steps for cell in table[name] if cell is not None]
    unit, factor = ("s", 1.0) if any((v or 0.0) >= 1 for v in found) else ("ms", 1000.0)
    for name in steps:
        table[name] = [_scaled(cell, factor) for cell in table[name]]
    table.attrs["unit"] = unit
    return table


def _scaled(value: MetricValue | None, factor: float) -> MetricValue | None:
    if value is None:
        return None
    ends = {
        name: None if (end := getattr(value, name)) is None else end * factor
        for name in ("value", "low", "high")
    }
    return replace(value, **ends)


def tokens_over_time(trial: TrialRecord, *, look: Look) -> tuple[go.Figure, pd.DataFrame]:
    """Output tokens a second by chunk time, the warm-up apart, the measured window shaded."""
    rows, width_s = _bins(trial)
    figure = chart(look, _rate_finding(trial), f"bins of {number(width_s)} s" if width_s else "")
    kinds = (("warm-up", "warm_up", ink(dark=look.dark).muted), ("measured", "rate", OKABE_ITO[0]))
    for name, column, colour in kinds:
        if len(rows) and rows[column].any():
            figure.add_trace(_filled(rows, column, name, colour))
    rate = trial.metrics.get("output_tok_s")
    name_axes(
        figure,
        plain_title("time since the trial began", "s"),
        plain_title("output tokens", "tok/s"),
        dark=look.dark,
    )
    if rate is not None and rate.value is not None:
        add_level(figure, rate.value, f"{number(rate.value)} over the window", dark=look.dark)
    add_window(figure, trial.window_s, dark=look.dark)
    figure.update_yaxes(rangemode="tozero")
    figure.update_layout(uirevision="rate", hovermode="x")
    return figure, rows


def _bins(trial: TrialRecord) -> tuple[pd.DataFrame, float]:
    chunks = [(c.time_s, c.tokens, r.warm_up) for r in trial.requests for c in r.chunks]
    if not chunks:
        return pd.DataFrame(columns=["time_s", "rate", "warm_up"]), 0.0
    times = np.array([time for time, _, _ in chunks])
    tokens = np.array([count for _, count, _ in chunks], dtype=float)
    warm = np.array([flag for _, _, flag in chunks], dtype=bool)
    start, end = min(0.0, float(times.min())), float(times.max())
    width_s = next((w for w in NICE_S if (end - start) / w <= BINS), NICE_S[-1])
    count = max(1, math.ceil((end - start) / width_s + 1e-9))
    edges = start + width_s * np.arange(count + 1)
    sums = [np.histogram(times[m], edges, weights=tokens[m])[0] / width_s for m in (~warm, warm)]
    return pd.DataFrame({"time_s": edges[:-1], "rate": sums[0], "warm_up": sums[1]}), width_s


def _filled(rows: pd.DataFrame, column: str, name: str, colour: str) -> go.Scatter:
    return go.Scatter(
        x=rows["time_s"].tolist(),
        y=rows[column].tolist(),
        mode="lines",
        line={"color": colour, "width": 1.5, "shape": "hv"},
        fill="tozeroy",
        fillcolor=with_alpha(colour, 0.15),
        name=name,
        hoverinfo="text",
        hovertext=[f"{name} <b>{number(value)}</b> tok/s" for value in rows[column]],
    )


def _rate_finding(trial: TrialRecord) -> str:
    rate = trial.metrics.get("output_tok_s")
    if rate is None or rate.value is None:
        return f"Tokens over time; {rate.reason if rate else 'nothing was measured'}"
    return f"{number(rate.value)} output tok/s over the measured window"


def chunk_sizes(trial: TrialRecord, *, look: Look) -> tuple[go.Figure, pd.DataFrame]:
    """How many tokens reached the client together."""
    sizes = [chunk.tokens for request in measured(trial) for chunk in request.chunks]
    values, counts = np.unique(np.array(sizes, dtype=np.int64), return_counts=True)
    shares = 100 * counts / max(1, counts.sum())
    rows = pd.DataFrame({"tokens": values, "chunks": counts, "share": shares})
    figure = chart(look, _chunk_finding(trial.metrics.get("tokens_per_chunk"), len(sizes)))
    figure.add_trace(
        go.Bar(
            x=[str(value) for value in values],
            y=shares.tolist(),
            width=0.5,
            marker={"color": OKABE_ITO[0]},
            hoverinfo="text",
            hovertext=[
                f"{plural(int(size), 'token')}: <b>{number(share)}</b> % of chunks, n={count:,}"
                for size, count, share in rows.itertuples(index=False)
            ],
        )
    )
    name_axes(
        figure, plain_title("tokens in a chunk"), plain_title("share of chunks", "%"),
        dark=look.dark,
    )  # fmt: skip
    figure.update_xaxes(type="category")
    figure.update_layout(uirevision="chunks", bargap=0.4)
    return figure, rows


def _chunk_finding(mean: MetricValue | None, count: int) -> str:
    if mean is None or mean.value is None:
        return "No chunk that bears a token was received"
    unit = METRICS["tokens_per_chunk"].unit
    return f"{number(mean.value)} {unit} a chunk on average, over {plural(count, 'chunk')}"
