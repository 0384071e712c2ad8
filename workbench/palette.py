"""The colours of groups, the same in every picture; no drawing library is needed for them."""

from __future__ import annotations

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
