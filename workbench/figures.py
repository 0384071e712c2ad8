"""The figures that pages, notebooks and reports share, made of the rows of a stored run.

Each is a plotly Figure whose title says what was found. Texts from results are escaped, so a
hostile string stays text. plotly is needed here and nowhere else in the workbench.
"""

from __future__ import annotations

from workbench.figures_pareto import Look, axis_title, finding, pareto
from workbench.figures_requests import requests_timeline
from workbench.figures_text import MISSING, interval, number, value_text

__all__ = [
    "MISSING",
    "Look",
    "axis_title",
    "finding",
    "interval",
    "number",
    "pareto",
    "requests_timeline",
    "value_text",
]
