"""Numbers over repeats: intervals, joint draws, effects, and the repeats that would be needed.

A repeat is measured with fresh content at another time, so the scatter of the repeats holds both
the noise from run to run and that of the requests inside. Drawing three repeats with replacement
and clusters of requests in them gets the width wrong twice: too narrow for so few repeats, and
the requests counted once more. Here the repeats' scatter is drawn with normal weights over the
root of a chi-square, whose quantiles are Student's interval for any number of repeats. Positive
quantities are treated on a logarithmic scale. What has one repeat is resampled inside
(`experiments.statistics`). Everything is seeded and deterministic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
COVERAGE = 0.95
POWER = 0.9
MOST_REPEATS = 1000  # beyond it no number of needed repeats is named
LOG_REACH = 100.0
_NORMAL_FROM = 400  # degrees of freedom from which Student's t is the normal distribution


@dataclass(frozen=True, kw_only=True)
class Effect:
    """B over A: a ratio with its interval. `low` and `high` None: too few repeats to tell."""

    ratio: float
    low: float | None
    high: float | None
    repeats: int  # blocks, or the smaller number of repeats where they are not paired
    scatter: float | None  # standard deviation of the logarithm of the ratio from one repeat


def t_quantile(probability: float, freedom: float) -> float:
    """Student's t for `probability` in (0.5, 1); a fractional `freedom` is rounded down.

    Bisection on the closed form for whole degrees of freedom (Abramowitz and Stegun 26.7.3-4).
    """
    whole = max(1, math.floor(freedom))
    if whole > _NORMAL_FROM:
        return NormalDist().inv_cdf(probability)
    return _t_of_two_sides(2 * probability - 1, whole)


@lru_cache(maxsize=4096)
def _t_of_two_sides(inside: float, freedom: int) -> float:
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _inside(middle, freedom) < inside else (low, middle)
    return math.sqrt(freedom) * math.tan((low + high) / 2)


def _inside(angle: float, freedom: int) -> float:
    """P(|T| <= sqrt(freedom) * tan(angle))."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2 == 1
    term, total = (cosine, 0.0) if odd else (1.0, 0.0)
    for k in range(3 if odd else 2, freedom + 1, 2):
        total += term
        term *= cosine**2 * (k - 1) / k
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def over_repeats(values: Array, estimates: Array) -> tuple[Array, Array]:
    """95 % intervals of `estimates` [metrics] from one value a repeat, [repeats, metrics].

    NaN for fewer than two repeats and for a metric that a repeat lacks.
    """
    repeats = len(values)
    if repeats < 2:
        return np.full(len(estimates), np.nan), np.full(len(estimates), np.nan)
    logarithmic = _positive(values, estimates)
    student = t_quantile((1 + COVERAGE) / 2, repeats - 1)
    half = student * _scaled(values, logarithmic).std(axis=0, ddof=1) / math.sqrt(repeats)
    factor = bounded_exp(np.where(logarithmic, half, 0.0))
    low = np.where(logarithmic, estimates / factor, estimates - half)
    return low, np.where(logarithmic, estimates * factor, estimates + half)


def draws_over_repeats(values: Array, estimates: Array, *, draws: int, seed: int) -> Array:
    """[draws, metrics] of `estimates` as the scatter of `values` [repeats, metrics] allows.

    All metrics of one draw rest on the same weights, so what they have in common is kept. The
    marginal of each is Student's t with repeats - 1 degrees of freedom.
    """
    repeats = len(values)
    generator = np.random.default_rng(seed)
    normal = generator.standard_normal((draws, repeats))
    spread = np.sqrt(generator.chisquare(repeats - 1, draws) * repeats)  # [draws]
    weights = normal / spread[:, None]
    logarithmic = _positive(values, estimates)
    scaled = _scaled(values, logarithmic)
    moved = weights @ (scaled - scaled.mean(axis=0))  # [draws, metrics]
    factor = bounded_exp(np.where(logarithmic, moved, 0.0))
    return np.where(logarithmic, estimates * factor, estimates + moved)


def bounded_exp(logs: Array) -> Array:
    """exp, held finite: a draw from two repeats may lie anywhere."""
    return np.exp(np.clip(logs, -LOG_REACH, LOG_REACH))


def _positive(values: Array, estimates: Array) -> NDArray[np.bool_]:
    """[metrics] whether a metric is positive throughout, so that it has a logarithm."""
    return (values > 0).all(axis=0) & (estimates > 0)


def _scaled(values: Array, logarithmic: NDArray[np.bool_]) -> Array:
    return np.where(logarithmic, np.log(np.where(logarithmic, values, 1.0)), values)


def paired_effect(a: Array, b: Array, *, coverage: float = COVERAGE) -> Effect:
    """b / a from blocks [repeats]: what disturbs both arms of one block cancels."""
    logs = np.log(b) - np.log(a)
    count = len(logs)
    scatter = float(logs.std(ddof=1)) if count > 1 else None
    half = None if scatter is None else scatter / math.sqrt(count)
    return _effect(float(logs.mean()), half, count - 1, coverage, count, scatter)


def unpaired_effect(a: Array, b: Array, *, coverage: float = COVERAGE) -> Effect:
    """mean of b / mean of a on the logarithmic scale, by Welch's interval."""
    shift = float(np.log(b).mean() - np.log(a).mean())
    count = min(len(a), len(b))
    if count < 2:
        return _effect(shift, None, 0, coverage, count, None)
    parts = [np.log(arm).var(ddof=1) / len(arm) for arm in (a, b)]
    total = float(sum(parts))
    shares = sum(part**2 / (len(arm) - 1) for part, arm in zip(parts, (a, b), strict=True))
    freedom = total**2 / shares if shares > 0 else float(count - 1)
    scatter = math.sqrt(total * count)
    return _effect(shift, math.sqrt(total), freedom, coverage, count, scatter)


def drawn_effect(draws_a: Array, draws_b: Array, ratio: float) -> Effect:
    """The effect from draws inside one repeat of each arm; it does not cover other runs."""
    logs = np.log(draws_b) - np.log(draws_a)
    tail = (1 - COVERAGE) / 2
    low, high = np.exp(np.quantile(logs, [tail, 1 - tail]))
    return Effect(ratio=ratio, low=float(low), high=float(high), repeats=1, scatter=None)


def _effect(
    shift: float,
    error: float | None,
    freedom: float,
    coverage: float,
    repeats: int,
    scatter: float | None,
) -> Effect:
    if error is None:
        low = high = None
    else:
        half = t_quantile((1 + coverage) / 2, freedom) * error
        low, high = math.exp(shift - half), math.exp(shift + half)
    return Effect(ratio=math.exp(shift), low=low, high=high, repeats=repeats, scatter=scatter)


def needed_repeats(scatter: float, ratio: float, *, power: float = POWER) -> int | None:
    """Repeats from which a true `ratio` is found with `power`; None for more than a thousand.

    `scatter` is that of the logarithm of the ratio from one repeat of each arm.
    """
    sought = abs(math.log(ratio))
    for repeats in range(2, MOST_REPEATS + 1):
        freedom = repeats - 1
        needed = t_quantile((1 + COVERAGE) / 2, freedom) + t_quantile(power, freedom)
        if needed * scatter / math.sqrt(repeats) <= sought:
            return repeats
    return None
