"""Where words fit beside marks: a greedy search over four sides, in estimated pixels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

PLOT_WIDTH, PLOT_HEIGHT = 440.0, 300.0  # a cautious guess between a phone and a wide page
MARK_RADIUS = 6.0
LETTER_WIDTH, LINE_HEIGHT = 6.2, 14.0
GAP = 8.0  # from the centre of a mark to the first letter


@dataclass(frozen=True, kw_only=True)
class Box:
    """A rectangle in pixels, the origin at the bottom left."""

    left: float
    bottom: float
    right: float
    top: float

    def overlaps(self, other: Box) -> bool:
        """True where the two share any area."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.bottom < other.top
            and other.bottom < self.top
        )

    def holds(self, spots: np.ndarray) -> bool:
        """True where a mark or line at any of `spots` ([n, 2], pixels) reaches inside."""
        x, y, reach = spots[:, 0], spots[:, 1], MARK_RADIUS
        across = (x > self.left - reach) & (x < self.right + reach)
        return bool((across & (y > self.bottom - reach) & (y < self.top + reach)).any())


def free_positions(
    marks: np.ndarray,
    texts: Sequence[str],
    obstacles: np.ndarray | None,
    is_log: Callable[[np.ndarray], bool],
    *,
    height: float = PLOT_HEIGHT,
) -> list[str | None]:
    """Plotly's `textposition` for each text, or None where no side is free.

    `marks` [n, 2] are the labelled points and `obstacles` [m, 2] every drawn point, in axis units;
    `height` is the least that the plot has, in pixels.
    Earlier texts are placed first.
    """
    every = marks if obstacles is None else np.concatenate([marks, obstacles])
    scales = [_scale(every[:, side], is_log(every[:, side])) for side in (0, 1)]
    size = (PLOT_WIDTH, height)
    pixels = np.stack([scales[i](marks[:, i]) * size[i] for i in (0, 1)], axis=1)
    spots = np.stack([scales[i](every[:, i]) * size[i] for i in (0, 1)], axis=1)
    taken: list[Box] = []
    return [_place(at, text, spots, taken) for at, text in zip(pixels, texts, strict=True)]


def _scale(values: np.ndarray, log: bool) -> Callable[[np.ndarray], np.ndarray]:
    moved = np.log10(values) if log else values
    low = moved.min() if log else min(0.0, moved.min())  # where the axis starts
    spread = (moved.max() - low) or 1.0
    return lambda given: ((np.log10(given) if log else given) - low) / spread


def _place(at: np.ndarray, text: str, spots: np.ndarray, taken: list[Box]) -> str | None:
    for name, box in _candidates(at, LETTER_WIDTH * len(text)).items():
        outside = box.left < -20 or box.right > PLOT_WIDTH * 1.14
        if outside or box.holds(spots) or any(box.overlaps(other) for other in taken):
            continue
        taken.append(box)
        return name
    return None


def _candidates(at: np.ndarray, width: float) -> dict[str, Box]:
    x, y = float(at[0]), float(at[1])
    half = LINE_HEIGHT / 2
    above, below = (y + GAP, y + GAP + LINE_HEIGHT), (y - GAP - LINE_HEIGHT, y - GAP)
    right, left = (x + GAP / 2, x + GAP / 2 + width), (x - GAP / 2 - width, x - GAP / 2)
    sides = {
        "top right": (right, above),
        "middle right": ((x + GAP, x + GAP + width), (y - half, y + half)),
        "top left": (left, above),
        "bottom left": (left, below),
        "bottom right": (right, below),
    }
    return {
        name: Box(left=span[0], right=span[1], bottom=rise[0], top=rise[1])
        for name, (span, rise) in sides.items()
    }
