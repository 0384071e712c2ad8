"""What decoder truncation costs and saves: waits by prompt length, rows spared, tokens flipped."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from experiments.proportions import share_between
from workbench.columns import words_of
from workbench.figures_chart import (
    Series,
    add_series,
    chart,
    is_simulated,
    name_axes,
    nullable,
    plain_title,
)
from workbench.figures_loads import load_axis
from workbench.figures_marks import stamp
from workbench.figures_range import hold_range
from workbench.figures_ratios import counted, levels, usable
from workbench.figures_text import in_order, interval, number, plural, safe
from workbench.figures_theme import MAX_GROUPS, OKABE_ITO, Look, with_alpha

MODE, KEEP = "engine.replay_mode", "engine.replay_keep_tokens"
MODES = ("off", "mask", "compact")
MOST_TRIALS = 24  # whose requests are read
MOST_BINS = 8
MOST_DOTS = 2000
SUMMARY = (
    "setting", "points", "rows_run", "rows_skipped", "skipped_share", "flips", "flips_low",
    "flips_high", "flips_n", "flips_reason", "hit_rate", "hit_n",
)  # fmt: skip
Requests = Callable[[str], pd.DataFrame]
"""Reads the requests of a trial."""


def replay_settings(points: pd.DataFrame) -> pd.Series:
    """Mode and keep tokens of each point in words; full prefill keeps nothing to speak of."""
    if MODE not in points:
        return pd.Series([""] * len(points), index=points.index, dtype=object)
    modes = words_of(points[MODE])
    keeps = words_of(points[KEEP]) if KEEP in points else pd.Series("", index=points.index)
    words = modes + ", keep " + keeps
    return words.where(modes != "off", "off").astype(object)


def setting_order(names: pd.Series) -> list[str]:
    """off, then mask, then compact; fewer kept tokens first."""
    ordered = in_order(names.map(lambda name: name.rpartition(" ")[2]).unique())
    places = {keep: place for place, keep in enumerate(ordered)}

    def place(name: str) -> tuple[int, int]:
        mode = name.partition(",")[0]
        return (MODES.index(mode) if mode in MODES else len(MODES), places[name.rpartition(" ")[2]])

    return sorted(names.unique(), key=place)


def waits(points: pd.DataFrame, requests: Requests) -> pd.DataFrame:
    """setting, prompt_tokens, seconds: each measured request of the least loaded valid points.

    There the wait for the first token is the prefill and one decode step, and no queue.
    """
    rows = usable(points, "ttft_s_mean")
    load = load_axis(points)
    if load is not None and len(rows):
        least = levels(rows, load)[0]
        rows = rows[words_of(rows[load]) == least]
    rows = rows[["trial_id"]].assign(setting=replay_settings(rows))
    chosen = _evenly(rows)
    found = [
        _waits_of(requests(str(trial))).assign(setting=setting)
        for trial, setting in zip(chosen["trial_id"], chosen["setting"], strict=True)
    ]
    names = ["setting", "prompt_tokens", "seconds"]
    return pd.concat(found, ignore_index=True)[names] if found else pd.DataFrame(columns=names)


def _evenly(rows: pd.DataFrame) -> pd.DataFrame:
    """As many trials of each setting, MOST_TRIALS at most."""
    each = max(1, MOST_TRIALS // max(1, rows["setting"].nunique()))
    return rows.groupby("setting", sort=False).head(each).head(MOST_TRIALS)


def _waits_of(requests: pd.DataFrame) -> pd.DataFrame:
    sound = requests[
        ~requests["warm_up"].astype(bool) & requests["error"].isna() & requests["sent_s"].notna()
    ]
    sound = sound[sound["chunk_time_s"].map(len) > 0]
    first = np.array([times[0] for times in sound["chunk_time_s"]], dtype=float)
    return pd.DataFrame({
        "prompt_tokens": sound["prompt_tokens"].to_numpy(float),
        "seconds": first - sound["sent_s"].to_numpy(float),
    })  # fmt: skip


def prefill_figure(
    points: pd.DataFrame, found: pd.DataFrame, *, look: Look
) -> tuple[go.Figure, pd.DataFrame]:
    """Wait for the first token against prompt length; medians of like lengths as lines."""
    lines = _medians(found)
    told = "least loaded points; dots are requests, lines medians of like lengths"
    figure = chart(look, _prefill_finding(lines), stamp(points), told)
    settings = setting_order(found["setting"]) if len(found) else []
    for place, name in enumerate(settings[:MAX_GROUPS]):
        colour = OKABE_ITO[place]
        figure.add_trace(_dots(found[found["setting"] == name], name, colour))
        add_series(figure, _median_line(name, lines[lines["setting"] == name], colour, points))
    x, y = plain_title("prompt", "tokens"), plain_title("TTFT", "s", "↓")
    name_axes(figure, x, y, dark=look.dark)
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(rangemode="tozero")
    hold_range(figure, zero=True)
    figure.update_layout(uirevision="prefill", showlegend=len(settings) > 1)
    return figure, found


def _medians(found: pd.DataFrame) -> pd.DataFrame:
    """setting, prompt_tokens, seconds, low, high, n: one row a setting and bin of lengths."""
    rows = []
    if found["prompt_tokens"].nunique() <= MOST_BINS:
        bins = found["prompt_tokens"]
    else:
        bins = pd.qcut(found["prompt_tokens"], MOST_BINS, labels=False, duplicates="drop")
    for (setting, _), part in found.groupby(["setting", bins.rename("bin")], sort=True):
        seconds = np.sort(part["seconds"].to_numpy(float))
        low, high = median_interval(seconds)
        rows.append({
            "setting": setting,
            "prompt_tokens": float(part["prompt_tokens"].median()),
            "seconds": float(np.median(seconds)), "low": low, "high": high, "n": len(seconds),
        })  # fmt: skip
    names = ["setting", "prompt_tokens", "seconds", "low", "high", "n"]
    return pd.DataFrame(rows, columns=names)


def median_interval(ascending: np.ndarray) -> tuple[float, float]:
    """Order statistics that hold the median in at least 95 % of cases; NaN for fewer than 6."""
    n = len(ascending)
    if n < 6:
        return float("nan"), float("nan")
    chance, term, rank = 0.0, 0.5**n if n < 1000 else 0.0, 0
    if not term:  # the normal limit serves where the sum would underflow
        rank = int(n / 2 - 0.98 * np.sqrt(n))
        return float(ascending[rank]), float(ascending[n - 1 - rank])
    while chance + term <= 0.025:
        chance += term
        rank += 1
        term *= (n - rank + 1) / rank
    return float(ascending[rank - 1]), float(ascending[n - rank])


def _dots(rows: pd.DataFrame, name: str, colour: str) -> go.Scattergl | go.Scatter:
    kind = go.Scattergl if len(rows) > MOST_DOTS else go.Scatter
    return kind(
        x=rows["prompt_tokens"].tolist(),
        y=rows["seconds"].tolist(),
        mode="markers",
        marker={"size": 4, "color": with_alpha(colour, 0.35)},
        legendgroup=name,
        showlegend=False,
        hoverinfo="skip",
    )


def _median_line(name: str, rows: pd.DataFrame, colour: str, points: pd.DataFrame) -> Series:
    hover = [
        f"{safe(name)}<br>{row.prompt_tokens:,.0f} prompt tokens: <b>{number(row.seconds)}</b> s"
        + (f"<br>95 % interval {span}" if (span := interval(row.low, row.high)) else "")
        + f"<br>n={row.n:,} requests"
        for row in rows.itertuples()
    ]
    return Series(
        name=name,
        colour=colour,
        x=rows["prompt_tokens"].tolist(),
        y=rows["seconds"].tolist(),
        low=rows["low"].tolist(),
        high=rows["high"].tolist(),
        hover=hover,
        dashed=is_simulated(points),
    )


def _prefill_finding(lines: pd.DataFrame) -> str:
    if lines.empty:
        return "No request of a valid point received a token"
    longest = lines.sort_values("prompt_tokens").groupby("setting", sort=False).tail(1)
    best, worst = (longest.loc[longest["seconds"].agg(pick)] for pick in ("idxmin", "idxmax"))
    if len(longest) == 1:
        length = plural(int(best["prompt_tokens"]), "prompt token")
        return f"{best['setting']}: {number(best['seconds'])} s at {length}"
    sure = longest["low"].notna().all()
    return (
        f"At the longest prompts {best['setting']} waits {number(best['seconds'])} s, "
        f"{worst['setting']} {number(worst['seconds'])} s"
        + ("" if sure else " (too few requests for intervals)")
    )


def replay_summary(points: pd.DataFrame) -> pd.DataFrame:
    """SUMMARY, one row a setting: all its valid points together.

    Shares are percent, None where nobody counted.
    """
    rows = points[points["valid"].astype(bool)]
    settings = replay_settings(rows)
    found = []
    for name in setting_order(settings) if len(rows) else []:
        part = rows[settings == name]
        run, skipped = _total(part, "decoder_rows_run"), _total(part, "decoder_rows_skipped")
        share = (
            100 * skipped / (run + skipped)
            if run is not None and skipped is not None and (run + skipped)
            else None
        )
        hits, prompts = counted(part, "cache_hit_rate")
        found.append({
            "setting": name, "points": len(part), "rows_run": run, "rows_skipped": skipped,
            "skipped_share": share, **_flips(part),
            "hit_rate": 100 * hits / prompts if prompts else None, "hit_n": int(prompts),
        })  # fmt: skip
    return pd.DataFrame(found, columns=list(SUMMARY), dtype=object)


def _total(rows: pd.DataFrame, name: str) -> float | None:
    found = usable(rows, name)
    return float(found[name].sum()) if len(found) else None


def _flips(rows: pd.DataFrame) -> dict[str, object]:
    """Tokens that differ from full prefill, of all that were compared."""
    count, tokens = counted(rows, "token_flip_rate_off")
    if not tokens:
        told = rows.get("token_flip_rate_off.reason", pd.Series(dtype=object)).dropna()
        why = str(told.iloc[0]) if len(told) else "outputs were not compared"
        return {"flips": None, "flips_low": None, "flips_high": None, "flips_n": 0,
                "flips_reason": why}  # fmt: skip
    low, high = share_between(round(count), round(tokens))
    ends = {f"flips_{name}": None if end is None else 100 * end
            for name, end in (("low", low), ("high", high))}  # fmt: skip
    return {"flips": 100 * count / tokens, **ends,
            "flips_n": int(tokens), "flips_reason": ""}  # fmt: skip


def costs_and_savings(
    points: pd.DataFrame, found: pd.DataFrame, *, look: Look
) -> tuple[go.Figure, pd.DataFrame]:
    """Decoder rows spared beside tokens flipped against full prefill, two bars a setting."""
    told = "flips: against full prefill on the same prompts, 95 % Wilson intervals"
    figure = chart(look, _saving_finding(found), stamp(points), told)
    names = found["setting"].tolist()
    spared, flips = (nullable(found[name].astype(float)) for name in ("skipped_share", "flips"))
    for name, values, colour, ends in (
        ("decoder rows spared", spared, OKABE_ITO[2], None),
        ("tokens flipped", flips, OKABE_ITO[3], found),
    ):
        figure.add_trace(go.Bar(
            x=values, y=names, orientation="h", name=name, marker={"color": colour},
            error_x=_flip_whiskers(ends) if ends is not None else None, hoverinfo="text",
            hovertext=[f"{safe(n)}: <b>{number(v)}</b> % {name}" for n, v in zip(
                names, values, strict=True)],
        ))  # fmt: skip
    name_axes(figure, plain_title("share", "%"), plain_title("replay"), dark=look.dark)
    figure.update_yaxes(type="category", autorange="reversed")
    figure.update_layout(barmode="group", bargap=0.35, uirevision="savings")
    figure.update_layout(legend={"traceorder": "normal"})
    return figure, found


def _flip_whiskers(found: pd.DataFrame) -> dict[str, object]:
    rows = found[["flips", "flips_low", "flips_high"]].astype(float).to_numpy()
    return {
        "type": "data",
        "symmetric": False,
        "array": np.nan_to_num(rows[:, 2] - rows[:, 0]).clip(min=0).tolist(),
        "arrayminus": np.nan_to_num(rows[:, 0] - rows[:, 1]).clip(min=0).tolist(),
        "thickness": 1.5,
        "width": 3,
    }


def _saving_finding(found: pd.DataFrame) -> str:
    known = found[found["skipped_share"].notna()]
    if known.empty:
        return "No point counted decoder rows"
    top = known.loc[known["skipped_share"].astype(float).idxmax()]
    told = f"{top['setting']} spares {number(top['skipped_share'])} % of decoder rows"
    if top["flips"] is None or pd.isna(top["flips"]):
        return f"{told}; flips not known"
    return f"{told} and flips {number(top['flips'])} % of tokens"
