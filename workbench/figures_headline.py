"""Which metrics answer the question of a run, by the form of its load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.catalogue import METRICS
from workbench.columns import words_of
from workbench.figures_text import in_order
from workbench.pareto import DEFAULT_X, DEFAULT_Y, Axis

if TYPE_CHECKING:
    import pandas as pd

BEST = {
    "output_tok_s_device": "Best throughput per device",
    "tok_s_user": "Best interactivity",
    "ttft_s_p50": "Shortest median TTFT",
    "energy_j_token": "Least energy per token",
    "prefill_tok_s": "Best prefill throughput",
    "energy_j_total_token": "Least energy per token, prompt included",
    "decode_step_s": "Shortest decode step",
    "accuracy": "Best accuracy",
    "tok_s_user_p50": "Best median interactivity",
    "total_tok_s_device": "Best total throughput per device",
    "output_tok_s": "Best throughput",
    "total_tok_s": "Best total throughput",
    "request_s": "Most requests a second",
    "ttft_s_mean": "Shortest mean TTFT",
    "e2e_s_p50": "Shortest median E2E",
    "e2e_s_mean": "Shortest mean E2E",
    "floor_fraction": "Nearest to its floor",
    "call_s": "Shortest call",
    "peer_ratio": "Furthest ahead of its peer",
}
"""Metric -> what the best value of it is called."""


@dataclass(frozen=True, kw_only=True)
class Headline:
    """The two axes of a run's front, the metrics of its tiles, and those of its table."""

    x: str = DEFAULT_X.metric
    y: str = DEFAULT_Y.metric
    tiles: tuple[str, ...] = ("output_tok_s_device", "tok_s_user", "ttft_s_p50", "energy_j_token")
    columns: tuple[str, ...] = ("output_tok_s_device", "tok_s_user", "ttft_s_p50", "e2e_s_p50")

    @property
    def axes(self) -> tuple[Axis, Axis]:
        """The axes of the front, each in the direction in which its metric is better."""
        x, y = (
            Axis(metric=name, direction="min" if METRICS[name].direction == "min" else "max")
            for name in (self.x, self.y)
        )
        return x, y


SERVING = Headline()
FORMS = {
    "prefill_step": Headline(
        x="ttft_s_p50", y="prefill_tok_s",
        tiles=("prefill_tok_s", "ttft_s_p50", "energy_j_total_token"),
        columns=("prefill_tok_s", "ttft_s_p50", "rounds"),
    ),
    "decode_batch": Headline(
        tiles=("output_tok_s_device", "tok_s_user", "decode_step_s", "energy_j_token"),
        columns=("output_tok_s_device", "tok_s_user", "decode_step_s", "rounds"),
    ),
    "sessions": Headline(
        columns=("output_tok_s_device", "tok_s_user", "ttft_s_p50", "sessions_completed"),
    ),
    "eval": Headline(
        x="output_tok_s_device", y="accuracy",
        tiles=("accuracy", "output_tok_s_device", "tok_s_user", "ttft_s_p50"),
        columns=("accuracy", "output_tok_s_device", "tok_s_user", "e2e_s_p50"),
    ),
    "kernel": Headline(
        x="call_s", y="floor_fraction",
        tiles=("floor_fraction", "call_s", "peer_ratio"),
        columns=("call_s", "floor_s", "floor_fraction", "peer_s"),
    ),
}  # fmt: skip


ACROSS = (
    "tok_s_user", "tok_s_user_p50", "ttft_s_p50", "ttft_s_mean", "e2e_s_p50", "e2e_s_mean",
)  # fmt: skip
UP = ("output_tok_s_device", "total_tok_s_device", "output_tok_s", "total_tok_s", "request_s")
"""Of points that other tools measured: metrics for the axes of their front, best first."""


def headline(points: pd.DataFrame) -> Headline:
    """What leads the pages of a run; runs of several forms of load lead as serving does.

    With results of other tools among the points, the axes are metrics that most runs tell.
    """
    found = _by_form(points)
    if not any(str(name).endswith(".basis") for name in points.columns):
        return found
    runs = points["run_id"].nunique()
    if min(_told_by(points, found.x), _told_by(points, found.y)) == runs:
        return found
    x, y = (max(names, key=lambda name: _told_by(points, name)) for names in (ACROSS, UP))
    shown = tuple(dict.fromkeys((y, x, "ttft_s_p50", "e2e_s_p50")))
    return Headline(x=x, y=y, tiles=shown, columns=shown)


def _told_by(points: pd.DataFrame, metric: str) -> int:
    """How many runs have a point with this number."""
    if metric not in points:
        return 0
    return int(points.loc[points[metric].notna(), "run_id"].nunique())


def _by_form(points: pd.DataFrame) -> Headline:
    found = [
        value
        for name in ("workload.kind", "workload.load")
        if name in points and len(values := in_order(words_of(points[name]).unique())) == 1
        for value in values
        if value in FORMS
    ]
    return FORMS[found[0]] if found else SERVING


def headline_of(workload: Mapping[str, object]) -> Headline:
    """What leads one trial, by the workload of its point."""
    found = [form for name in ("kind", "load") if (form := str(workload.get(name))) in FORMS]
    return FORMS[found[0]] if found else SERVING
