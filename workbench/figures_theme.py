"""The look that all figures share: inks for light and dark, Okabe-Ito colours, one base layout."""

from __future__ import annotations

from dataclasses import dataclass

import plotly.graph_objects as go

from workbench.figures_text import wrap

OKABE_ITO = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
    "#B8A800",  # the palette's yellow, darkened until it can be read on white
    "#7F7F7F",  # in place of black, which a dark page would swallow
)
"""Okabe and Ito's colour-blind-safe order (https://jfly.uni-koeln.de/color/)."""
MAX_GROUPS = len(OKABE_ITO)
FONT = '"Source Sans", "Source Sans 3", "Source Sans Pro", "Helvetica Neue", Arial, sans-serif'


@dataclass(frozen=True, kw_only=True)
class Ink:
    """The neutral colours of one page background."""

    text: str
    muted: str
    grid: str
    surface: str


LIGHT = Ink(text="#1b2430", muted="#5c6775", grid="#e6e9ed", surface="#ffffff")
DARK = Ink(text="#e8ecf1", muted="#9aa6b4", grid="#2a323d", surface="#11161d")


def ink(*, dark: bool) -> Ink:
    """The neutral colours for a dark or a light page."""
    return DARK if dark else LIGHT


def with_alpha(colour: str, alpha: float) -> str:
    """`#rrggbb` as `rgba(...)` with `alpha` in 0..1."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"


def base_figure(
    title: str, subtitle: str, *, dark: bool, height: int, columns: int = 46
) -> go.Figure:
    """An empty figure with the shared look, `height` pixels below its title.

    Both texts are escaped, and wrapped at `columns` characters of the title: 46 fit a phone.
    """
    colours = ink(dark=dark)
    head = f"<b>{wrap(title, columns)}</b>"
    lines = 1.3 * (head.count("<br>") + 1)
    if subtitle:
        below = wrap(subtitle, columns * 4 // 3)
        lines += below.count("<br>") + 1
        head += f'<br><span style="font-size:12px;color:{colours.muted}">{below}</span>'
    top = round(30 + 17 * lines)
    figure = go.Figure()
    figure.update_layout(
        template="none",
        title={
            "text": head,
            "font": {"size": 16, "color": colours.text},
            "x": 0,
            "xref": "container",
            "y": 1,
            "yref": "container",
            "yanchor": "top",
            "pad": {"t": 22, "l": 4},  # y is the first line's base, not its top
        },
        font={"family": FONT, "size": 13, "color": colours.text},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        margin={"l": 60, "r": 16, "t": top, "b": 64},
        height=height + top,
        hoverlabel={
            "bgcolor": colours.surface,
            "bordercolor": colours.grid,
            "font": {"family": FONT, "size": 13, "color": colours.text},
            "align": "left",
        },
        legend={
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 0,
            "yref": "container",
            "yanchor": "bottom",
            "font": {"size": 12, "color": colours.muted},
            "title": {"font": {"size": 12, "color": colours.muted}},
        },
        modebar={
            "bgcolor": "rgba(0,0,0,0)",
            "color": colours.muted,
            "activecolor": colours.text,
            "orientation": "h",
        },
    )
    for update in (figure.update_xaxes, figure.update_yaxes):
        update(
            gridcolor=colours.grid,
            linecolor=colours.grid,
            zeroline=False,
            ticks="",
            tickfont={"size": 12, "color": colours.muted},
            title={"font": {"size": 12, "color": colours.muted}, "standoff": 10},
            automargin=True,
        )
    return figure
