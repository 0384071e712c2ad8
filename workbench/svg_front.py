"""The front as one static SVG, drawn by ourselves: no script, no browser and no plotly needed.

Staircase and 95 % band of each group, whiskers, hollow marks for what is not valid, and labels on
the front that cover neither each other nor a mark.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from workbench.catalogue import METRICS
from workbench.figures_labels import LETTER_WIDTH, LINE_HEIGHT, Box, free_positions
from workbench.figures_text import axis_mark, axis_words, in_order, safe, short, value_text
from workbench.palette import OKABE_ITO
from workbench.pareto import Axis, Values
from workbench.svg_axes import Scale, is_wide, path, scale_of, text, tick_text

if TYPE_CHECKING:
    import pandas as pd

    from workbench.fronts import Front

WIDTH, LEFT, RIGHT, TOP, PLOT_HEIGHT, BELOW = 900, 64, 24, 46, 400, 52
LEGEND_ROW, LEGEND_WORD = 20, 7.0
MAX_LABELS, MAX_LABEL_AXES, MAX_LABEL_CHARACTERS = 24, 4, 40
MAX_WHISKERS, MAX_BAND_POINTS = 60, 1000
LINE_DOTS = 24
SIDES = {
    "top right": (4, -11, "start"), "middle right": (8, 4, "start"), "top left": (-4, -11, "end"),
    "bottom left": (-4, 19, "end"), "bottom right": (4, 19, "start"),
}  # fmt: skip
"""Where the words begin that `figures_labels` gave a side: right and down of the mark."""
MOST_REACH = 0.19
"""How far whiskers may stretch the axis beyond the marks, in shares of their range: no picture is
drawn smaller than the one that labels were placed in."""
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#1b2430}.t{fill:#5c6775}.l{font-size:11px}"
    ".g{stroke:#e6e9ed}.h{fill:#fff;stroke-width:1.5}.b{opacity:.14}.s{fill:none;stroke-width:2}"
    ".w{stroke-width:1;opacity:.4}.f{stroke-width:8;stroke-linecap:round;opacity:.45}"
    ".q{stroke-linecap:square;stroke-width:6}"
)


@dataclass(frozen=True, kw_only=True)
class _Marks:
    """The points that have both numbers. All arrays are aligned."""

    values: Values  # [points, 2]
    bounds: Values  # [points, 2, 2] low and high of each axis; NaN where there is none
    hollow: np.ndarray
    imported: np.ndarray  # measured by another tool
    on_front: np.ndarray
    colours: list[str]
    names: dict[str, str]  # group -> colour, in the order of the legend
    rows: pd.DataFrame
    dashed: bool  # simulated: no engine served any of the points


@dataclass(frozen=True, kw_only=True)
class _Plot:
    x: Scale
    y: Scale

    def at(self, x: float, y: float) -> tuple[float, float]:
        return self.x(x), self.y(y)


def front_svg(points: pd.DataFrame, front: Front) -> str | None:
    """One `<svg>` element; None where no point has both numbers.

    `front` was made of the rows of `points`. Points that would land on one pixel are drawn once.
    """
    marks = _marks(points, front)
    if marks is None:
        return None
    plot = _Plot(
        x=scale_of(_reach(marks, 0), LEFT, WIDTH - RIGHT),
        y=scale_of(_reach(marks, 1), TOP + PLOT_HEIGHT, TOP),
    )
    legend, height = _legend(marks.names, TOP + PLOT_HEIGHT + BELOW)
    words = f"{METRICS[front.y.metric].heading} against {METRICS[front.x.metric].heading}"
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{safe(words)}"><style>{STYLE}</style>',
        *_frame(plot, front),
        *_bands(front, marks, plot),
        *_stairs(front, marks, plot),
        *_whiskers(marks, plot),
        *_dots(marks, plot),
        *_labels(marks, front, plot),
        *legend,
        "</svg>",
    ]
    return "\n".join(body)


def _marks(points: pd.DataFrame, front: Front) -> _Marks | None:
    values = front.competitors.values
    drawn = np.isfinite(values).all(axis=1)
    if not drawn.any():
        return None
    names = np.array([name or "not valid" for name in front.group_of], dtype=object)
    rows = points[drawn].assign(group=names[drawn])
    groups = [name for name in in_order(set(rows["group"])) if name != "not valid"]
    shown = {name: OKABE_ITO[min(k, len(OKABE_ITO) - 1)] for k, name in enumerate(groups)}
    hollow = np.array([reason is not None for reason in front.excluded])[drawn]
    colours = {**shown, "not valid": OKABE_ITO[-1]}
    return _Marks(
        values=values[drawn],
        bounds=front.competitors.bounds[drawn],
        hollow=hollow,
        imported=_imported(rows, front),
        on_front=front.on_front[drawn],
        colours=[colours[name] for name in rows["group"]],
        names={**shown, **({"not valid": colours["not valid"]} if hollow.any() else {})},
        rows=rows,
        dashed=all("simulated" in labels for labels in rows["labels"]),
    )


def _imported(rows: pd.DataFrame, front: Front) -> np.ndarray:
    names = [name for axis in (front.x, front.y) if (name := f"{axis.metric}.basis") in rows]
    return rows[names].notna().any(axis=1).to_numpy(bool)


def _reach(marks: _Marks, side: int) -> Values:
    """What the axis must hold: the marks, and the whiskers of the front as far as there is room."""
    values = marks.values[:, side]
    if is_wide(values):
        return values
    whiskers = marks.bounds[marks.on_front, side].ravel()
    room = float(values.max()) + MOST_REACH * (float(values.max()) - min(0.0, float(values.min())))
    return np.append(values, whiskers[np.isfinite(whiskers)].clip(float(values.min()), room))


def _frame(plot: _Plot, front: Front) -> Iterator[str]:
    bottom = TOP + PLOT_HEIGHT
    for tick in plot.x.ticks():
        x = plot.x(tick)
        yield f'<path class="g" d="M{x:.1f} {TOP}V{bottom}"/>'
        yield text(tick_text(tick), x, bottom + 17, anchor="middle", kind="t")
    for tick in plot.y.ticks():
        y = plot.y(tick)
        yield f'<path class="g" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
        yield text(tick_text(tick), LEFT - 7, y + 4, anchor="end", kind="t")
    bold = ' font-weight="600"'
    x_arrow, y_arrow = {"max": "→", "min": "←"}, {"max": "↑", "min": "↓"}
    words = _axis_words(front.x, x_arrow, log=plot.x.log)
    yield text(words, (LEFT + WIDTH - RIGHT) / 2, bottom + 38, anchor="middle", extra=bold)
    yield text(_axis_words(front.y, y_arrow, log=plot.y.log), 4, 18, extra=bold)


def _axis_words(axis: Axis, arrows: dict[str, str], *, log: bool) -> str:
    spec = METRICS[axis.metric]
    told = f"{spec.heading}, {spec.statistic} over {spec.basis}{', log scale' if log else ''}"
    return f"{told}; better {arrows[axis.direction]}"


def _bands(front: Front, marks: _Marks, plot: _Plot) -> Iterator[str]:
    if len(marks.rows) > MAX_BAND_POINTS:
        return
    for group in front.groups:
        band = front.band(group)
        known = np.isfinite(band.low) & np.isfinite(band.high)
        if group in marks.names and known.any():
            x = np.concatenate([band.x[known], band.x[known][::-1]])
            y = np.concatenate([band.high[known], band.low[known][::-1]])
            line = path(x, y, (plot.x, plot.y))
            yield f'<path class="b" d="{line}Z" fill="{marks.names[group]}"/>'


def _stairs(front: Front, marks: _Marks, plot: _Plot) -> Iterator[str]:
    dash = ' stroke-dasharray="6 4"' if marks.dashed else ""
    for group in front.groups:
        x, y = front.staircase(group)
        if len(x):
            line = path(x, y, (plot.x, plot.y))
            yield f'<path class="s" d="{line}" stroke="{marks.names[group]}"{dash}/>'


def _whiskers(marks: _Marks, plot: _Plot) -> Iterator[str]:
    few = len(marks.rows) <= MAX_WHISKERS
    for k, (x, y) in enumerate(marks.values):
        if not (marks.on_front[k] or few):
            continue
        (x_low, x_high), (y_low, y_high) = marks.bounds[k]
        lines = []
        if np.isfinite([x_low, x_high]).all():
            lines.append(f"M{plot.x(x_low):.1f} {plot.y(y):.1f}H{plot.x(x_high):.1f}")
        if np.isfinite([y_low, y_high]).all():
            lines.append(f"M{plot.x(x):.1f} {plot.y(y_low):.1f}V{plot.y(y_high):.1f}")
        if lines:
            yield f'<path class="w" d="{"".join(lines)}" stroke="{marks.colours[k]}"/>'


def _dots(marks: _Marks, plot: _Plot) -> Iterator[str]:
    """Beaten points as one path a colour, so that thousands stay small; the others above them."""
    faint: dict[tuple[str, bool], dict[str, None]] = {}
    over: list[str] = []
    for k, (x, y) in enumerate(marks.values):
        left, down = plot.at(float(x), float(y))
        colour, square = marks.colours[k], bool(marks.imported[k])
        if marks.hollow[k]:
            over.append(_mark(left, down, 4, square, f'class="h" stroke="{colour}"'))
        elif marks.on_front[k]:
            over.append(_mark(left, down, 5, square, f'fill="{colour}"'))
        else:
            faint.setdefault((colour, square), {})[f"M{left:.0f} {down:.0f}h0"] = None
    for (colour, square), dots in faint.items():
        kind = "f q" if square else "f"
        yield f'<path class="{kind}" d="{"".join(dots)}" stroke="{colour}"/>'
    yield from dict.fromkeys(over)


def _mark(x: float, y: float, reach: int, square: bool, how: str) -> str:
    """A square for what another tool measured, a circle for what was measured here."""
    if square:
        size = f'width="{2 * reach}" height="{2 * reach}"'
        return f'<rect {how} x="{x - reach:.1f}" y="{y - reach:.1f}" {size}/>'
    return f'<circle {how} cx="{x:.1f}" cy="{y:.1f}" r="{reach}"/>'


def _labels(marks: _Marks, front: Front, plot: _Plot) -> Iterator[str]:
    """The axes that vary along the front, beside as many of its points as there is room for."""
    members = np.flatnonzero(marks.on_front)
    members = members[np.argsort(-marks.values[members, 1], kind="stable")][:MAX_LABELS]
    names = _varying(marks.rows.iloc[members])
    if not names:
        return
    words = [
        short(
            " ".join(axis_mark(n) + value_text(marks.rows[n].iat[k]) for n in names),
            MAX_LABEL_CHARACTERS,
        )
        for k in members
    ]
    spots = free_positions(marks.values[members], words, _obstacles(marks, front), is_wide)
    taken: list[Box] = []
    for k, said, spot in zip(members, words, spots, strict=True):
        if spot is not None:
            x, y = plot.at(*map(float, marks.values[k]))
            across, down, anchor = SIDES[spot]
            box = _box_of(said, x + across, y + down, anchor)
            if not any(box.overlaps(other) for other in taken):  # this picture's own scale decides
                taken.append(box)
                yield text(said, x + across, y + down, anchor=anchor, kind="l t")
    key = ", ".join(f"{axis_mark(n).strip()} = {axis_words(n)}" for n in names)
    yield text(short(key, 130), WIDTH - RIGHT, TOP - 8, anchor="end", kind="l t")


def _box_of(said: str, x: float, y: float, anchor: str) -> Box:
    """What a word covers, y downwards."""
    width = LETTER_WIDTH * len(said)
    left = x - width if anchor == "end" else x
    return Box(left=left, bottom=y - LINE_HEIGHT + 3, right=left + width, top=y + 3)


def _varying(members: pd.DataFrame) -> list[str]:
    axes = [str(name) for name in members.columns if str(name).startswith("axis.")]
    return [n for n in axes if members[n].map(value_text).nunique() > 1][:MAX_LABEL_AXES]


def _obstacles(marks: _Marks, front: Front) -> Values:
    """[spots, 2] that no word may cover: every mark, and every line in dots."""
    dots = [marks.values]
    for group in front.groups:
        corners = np.stack(front.staircase(group), axis=1)
        for start, end in itertools.pairwise(corners):
            dots.append(np.linspace(start, end, LINE_DOTS)[1:-1])
    return np.concatenate(dots)


def _legend(names: dict[str, str], top: float) -> tuple[list[str], int]:
    """One entry a group, in rows; and the height of the picture with them."""
    if len(names) < 2:
        return [], int(top)
    found, x, y = [], float(LEFT), top + 10
    for name, colour in names.items():
        said = short(name, 48)
        width = 30 + LEGEND_WORD * len(said)
        if x > LEFT and x + width > WIDTH - RIGHT:
            x, y = float(LEFT), y + LEGEND_ROW
        fill = "#fff" if name == "not valid" else colour
        found.append(
            f'<circle cx="{x:.1f}" cy="{y - 4:.1f}" r="5" fill="{fill}" stroke="{colour}"/>'
        )
        found.append(text(said, x + 11, y, kind="t"))
        x += width
    return found, int(y + 14)
