"""Axes of pictures that we draw ourselves: scales in pixels, round ticks, escaped text."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workbench.bands import WIDE_RANGE
from workbench.figures_text import safe

Array = NDArray[np.float64]
Pixel = Callable[[float], float]
STEPS = (1.0, 2.0, 5.0, 10.0)
WANTED_TICKS = 6


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Values of one axis as pixels, from `start` to `end`. Values outside are clipped."""

    low: float
    high: float
    log: bool
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        low, high, at = (_moved(v, log=self.log) for v in (self.low, self.high, value))
        share = (at - low) / (high - low)
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values within the axis, in ascending order."""
        return _log_ticks(self.low, self.high) if self.log else _even_ticks(self.low, self.high)


def is_wide(values: Array) -> bool:
    """True where a linear axis would crush the small values."""
    return bool(len(values) and values.min() > 0 and values.max() / values.min() > WIDE_RANGE)


def scale_of(values: Array, start: float, end: float) -> Scale:
    """An axis that holds `values` with room at its ends; it begins at zero unless logarithmic."""
    log = is_wide(values)
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    if log:
        room = 0.06 * math.log10(high / low)
        return Scale(
            low=low * 10**-room, high=high * 10 ** (2 * room), log=True, start=start, end=end
        )
    bottom = min(0.0, low)
    room = (max(high, 0.0) - bottom) or 1.0
    return Scale(
        low=bottom - (0.06 * room if bottom < 0 else 0.0), high=bottom + 1.12 * room, log=False,
        start=start, end=end,
    )  # fmt: skip


def tick_text(value: float) -> str:
    """A tick as a reader takes it: `0`, `0.05`, `1,000`."""
    return f"{value:,.6g}"


def text(
    words: str, x: float, y: float, *, anchor: str = "start", kind: str = "", extra: str = ""
) -> str:
    """One line of escaped text; `kind` is its CSS class."""
    said = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{said}{extra}>{safe(words)}</text>'


def path(xs: Array, ys: Array, at: tuple[Pixel, Pixel]) -> str:
    """The `d` of a line through the points, in values of the axes `at`."""
    return "M" + "L".join(
        f"{at[0](float(x)):.1f} {at[1](float(y)):.1f}" for x, y in zip(xs, ys, strict=True)
    )


def _moved(value: float, *, log: bool) -> float:
    return math.log10(max(value, 1e-300)) if log else value


def _even_ticks(low: float, high: float) -> list[float]:
    rough = (high - low) / WANTED_TICKS
    power = 10 ** math.floor(math.log10(rough))
    step = next(s * power for s in STEPS if s * power >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = STEPS[:1] if len(decades) > 4 else STEPS[:3]
    every = max(1, len(decades) // 8)
    found = [s * 10.0**d for d in decades if d % every == 0 for s in steps]
    return [tick for tick in found if low <= tick <= high]
