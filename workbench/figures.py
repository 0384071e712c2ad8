"""The figures and tables in words that pages, notebooks and reports share.

Each figure is a plotly Figure whose title says what was found. Texts from results are escaped, so
a hostile string stays text. plotly is needed here and nowhere else in the workbench.
"""

from __future__ import annotations

from experiments.metric_specs import FAMILIES as LATENCY_FAMILIES
from workbench.figures_compare import (
    ARM,
    arms_front,
    beats_figure,
    change_words,
    changes_figure,
    changes_finding,
    judged,
    point_order,
)
from workbench.figures_effects import main_effects
from workbench.figures_energy import COSTS, ENERGY, metric_rows, power_over_time, why_none
from workbench.figures_environment import WITHOUT_A_GROUP, facts_beside
from workbench.figures_facts import (
    Best,
    best,
    by_axes,
    cell_words,
    conduct_table,
    configuration_table,
    metric_table,
    point_plan,
)
from workbench.figures_headline import BEST, headline
from workbench.figures_latency import chunk_sizes, distributions, ladder, tokens_over_time
from workbench.figures_live import device_rows, seconds_figure, seconds_table
from workbench.figures_loads import apart, best_by_load
from workbench.figures_marks import CROWDED_FROM, SURE_UP_TO, axis_title, finding
from workbench.figures_parallel import parallel_coordinates
from workbench.figures_pareto import pareto
from workbench.figures_range import is_empty
from workbench.figures_ratios import levels, matched_ratios, neighbour, varied
from workbench.figures_replay import costs_and_savings, prefill_figure, replay_summary, waits
from workbench.figures_requests import requests_timeline
from workbench.figures_speculation import (
    by_position,
    by_text_kind,
    drafted,
    speed_up,
)
from workbench.figures_sweep import Cells, cells, heat_map, interaction_lines
from workbench.figures_targets import target_marks
from workbench.figures_text import (
    MISSING,
    axis_phrase,
    axis_words,
    basis_phrase,
    in_order,
    interval,
    kind_words,
    number,
    percent,
    plural,
    repeats_words,
    samples_words,
    short,
    span_words,
    value_text,
)
from workbench.figures_theme import Look
from workbench.figures_trends import Told, cells_of, commit_of, trend, trend_figure
from workbench.figures_verified import TALLY, verified_tokens
from workbench.words import duration_words

__all__ = [
    "BEST",
    "headline",
    "is_empty",
    "kind_words",
    "pareto",
    "target_marks",
    "requests_timeline",
    "heat_map",
    "interaction_lines",
    "main_effects",
    "parallel_coordinates",
    "seconds_figure",
    "seconds_table",
    "device_rows",
    "duration_words",
    "LATENCY_FAMILIES",
    "chunk_sizes",
    "distributions",
    "ladder",
    "tokens_over_time",
    "TALLY",
    "by_position",
    "by_text_kind",
    "drafted",
    "speed_up",
    "verified_tokens",
    "costs_and_savings",
    "prefill_figure",
    "replay_summary",
    "waits",
    "CROWDED_FROM",
    "SURE_UP_TO",
    "WITHOUT_A_GROUP",
    "facts_beside",
    "ARM",
    "arms_front",
    "beats_figure",
    "change_words",
    "changes_figure",
    "changes_finding",
    "judged",
    "point_order",
    "COSTS",
    "ENERGY",
    "metric_rows",
    "power_over_time",
    "why_none",
    "Told",
    "cells_of",
    "commit_of",
    "trend",
    "trend_figure",
    "span_words",
    "Cells",
    "cells",
    "levels",
    "matched_ratios",
    "neighbour",
    "varied",
    "apart",
    "best_by_load",
    "Look",
    "axis_title",
    "finding",
    "Best",
    "best",
    "by_axes",
    "cell_words",
    "conduct_table",
    "configuration_table",
    "metric_table",
    "point_plan",
    "MISSING",
    "axis_phrase",
    "axis_words",
    "basis_phrase",
    "in_order",
    "interval",
    "number",
    "percent",
    "plural",
    "samples_words",
    "repeats_words",
    "short",
    "value_text",
]
