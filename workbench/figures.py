"""The figures and tables in words that pages, notebooks and reports share.

Each figure is a plotly Figure whose title says what was found. Texts from results are escaped, so
a hostile string stays text. plotly is needed here and nowhere else in the workbench.
"""

from __future__ import annotations

from workbench.figures_facts import Best, best, cell_words, configuration_table, metric_table
from workbench.figures_marks import axis_title, finding
from workbench.figures_pareto import Look, pareto
from workbench.figures_requests import requests_timeline
from workbench.figures_text import (
    MISSING,
    axis_phrase,
    axis_words,
    in_order,
    interval,
    number,
    plural,
    repeats_words,
    short,
    value_text,
)

__all__ = [
    "pareto",
    "requests_timeline",
    "Look",
    "axis_title",
    "finding",
    "Best",
    "best",
    "cell_words",
    "configuration_table",
    "metric_table",
    "MISSING",
    "axis_phrase",
    "axis_words",
    "in_order",
    "interval",
    "number",
    "plural",
    "repeats_words",
    "short",
    "value_text",
]
