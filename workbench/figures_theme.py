"""The look that all figures share: inks for light and dark, Okabe-Ito colours, one base layout."""

from __future__ import annotations

from dataclasses import dataclass

import plotly.graph_objects as go

from workbench.figures_text import safe, wrap
from workbench.palette import OKABE_ITO

MAX_GROUPS = len(OKABE_ITO)
CLEAR = "rgba(0,0,0,0)"  # the page shows through
FONT = '"Source Sans", "Source Sans 3", "Source Sans Pro", "Helvetica Neue", Arial, sans-serif'


@dataclass(frozen=True, kw_only=True)
class Ink:
    """The neutral colours of one page background."""

    text: str
    muted: str
    grid: str
    surface: str


@dataclass(frozen=True, kw_only=True)
class Look:
    """How a figure is dressed; nothing here changes what it says."""

    title: str = ""  # empty: what the figure finds
    subtitle: str = ""
    dark: bool = False
    height: int = 430
    columns: int = 46  # characters of the title in a line: 46 fit a phone
    selected: str | None = None  # the trial id that gets a ring


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
    `layout.meta` keeps them unwrapped, with the pixels they take, for pages that show them
    beside the figure.
    """
    colours = ink(dark=dark)
    subtitle = subtitle.replace(" %", "\u00a0%")  # no line breaks before it
    head, top = _head(title, subtitle, colours, columns)
    figure = go.Figure()
    figure.update_layout(
        template="none",
        title=head,
        meta={"title": safe(title), "subtitle": safe(subtitle), "height": top},
        font={"family": FONT, "size": 13, "color": colours.text},
        paper_bgcolor=CLEAR,
        plot_bgcolor=CLEAR,
        margin={"l": 60, "r": 16, "t": top, "b": 64},
        height=height + top,
        hoverlabel=_hover_look(colours),
        legend=_legend_look(colours),
        modebar={"bgcolor": CLEAR, "color": colours.muted, "activecolor": colours.text},
    )
    axis = _axis_look(colours)
    figure.update_xaxes(**axis)
    figure.update_yaxes(**axis)
    return figure


def _head(title: str, subtitle: str, colours: Ink, columns: int) -> tuple[dict, int]:
    """Plotly's title with the subtitle below it, and the pixels that the two take."""
    text = f"<b>{wrap(title, columns)}</b>"
    lines = 1.3 * (text.count("<br>") + 1)
    if subtitle:
        below = wrap(subtitle, columns * 4 // 3)
        lines += below.count("<br>") + 1
        text += f'<br><span style="font-size:12px;color:{colours.muted}">{below}</span>'
    place = {"x": 0, "xref": "container", "y": 1, "yref": "container", "yanchor": "top"}
    pad = {"t": 22, "l": 4}  # y is the first line's base, not its top
    font = {"size": 16, "color": colours.text}
    return {"text": text, "font": font, "pad": pad, **place}, round(30 + 17 * lines)


def _hover_look(colours: Ink) -> dict:
    return {
        "bgcolor": colours.surface,
        "bordercolor": colours.grid,
        "font": {"family": FONT, "size": 13, "color": colours.text},
        "align": "left",
    }


def _legend_look(colours: Ink) -> dict:
    """Below the plot, from its left edge."""
    font = {"size": 12, "color": colours.muted}
    place = {"x": 0, "xanchor": "left", "y": 0, "yref": "container", "yanchor": "bottom"}
    return {"orientation": "h", "font": font, "title": {"font": font}, **place}


def _axis_look(colours: Ink) -> dict:
    font = {"size": 12, "color": colours.muted}
    return {
        "gridcolor": colours.grid,
        "linecolor": colours.grid,
        "zeroline": False,
        "ticks": "",
        "tickfont": font,
        "title": {"font": font, "standoff": 10},
        "automargin": True,
        "separatethousands": True,
        "exponentformat": "none",
    }
