"""The two arms of a comparison: which points of which run, and which of them belong together."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from experiments.axes import called
from workbench.columns import by_axes
from workbench.errors import ComparisonError, UsageError
from workbench.figures_text import value_text
from workbench.grouping import LOAD_FIELDS
from workbench.stored_run import Run

if TYPE_CHECKING:
    import pandas as pd

    from workbench.store import Store

PARTS = ("axis", "engine", "workload")  # where a setting is looked up, in this order
TRIAL = "trial"  # a point by the beginning of its trial's id: two single points make a pair
OTHERS_NAMES = frozenset({"accelerator", "dtype", "framework", "model"})
"""Settings that another tool calls by words of its own: `workbench.comparability` judges them."""
NOT_ASKED = frozenset({"path", "seed"})  # workload fields that are not what was asked
EXCUSED = {
    "content": ("content", "content_hash"),
    "load": ("load", "batch_size", "rate", "time_scale"),
}
"""Workload fields that need not agree once a difference of that name is accepted."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """The valid points of a run that fit `where` (setting -> value as tables show it)."""

    run: Run
    where: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def label(self) -> str:
        """The run, and what its points were chosen by."""
        chosen = ",".join(f"{name}={value}" for name, value in self.where.items())
        return f"{self.run.run_id}:{chosen}" if chosen else self.run.run_id

    @cached_property
    def points(self) -> pd.DataFrame:
        """One row a valid point, ordered by axes. UsageError for a setting that no point has."""
        points = self.run.points()
        keep = points["valid"].to_numpy(dtype=bool, copy=True)
        for name, wanted in self.where.items():
            if name == TRIAL:
                keep &= points["trial_id"].str.startswith(wanted).to_numpy(dtype=bool)
                continue
            texts = setting(points, name)
            if texts is None:
                raise UsageError(
                    f"the points have no setting {name!r}.",
                    where=self.label,
                    remedy=_nearest(name, points),
                )
            keep &= np.array([text == wanted for text in texts])
        return by_axes(points[keep]).reset_index(drop=True)


def select(run: Run, **where: object) -> Arm:
    """The points of `run` with these settings: `select(run, draft_length=5)`."""
    return Arm(run=run, where={name: value_text(value) for name, value in where.items()})


def parse_arm(store: Store, text: str) -> Arm:
    """`RUN` or `RUN:draft_length=5,batch_size=16`; UsageError for anything else."""
    run_id, _, chosen = text.partition(":")
    pairs = [part.partition("=") for part in chosen.split(",") if part]
    if any(not name or not value for name, _, value in pairs):
        raise UsageError(
            f"{text!r} does not say which points are meant.",
            remedy="Write RUN, or RUN:setting=value,setting=value.",
        )
    return Arm(run=store.run(run_id), where={name.strip(): v.strip() for name, _, v in pairs})


def against_reference(run: Run, names: Sequence[str]) -> list[tuple[str, str]]:
    """Each arm of a plan beside the reference that it is held against, or else the first arm.

    `names` are the arms that have points; nothing for fewer than two.
    """
    named = str(run.plan.get("reference"))
    reference = named if named in names else next(iter(names), None)
    return [(name, reference) for name in names if reference is not None and name != reference]


def setting(points: pd.DataFrame, name: str) -> list[str] | None:
    """A setting of each point in words, wherever it is kept; None where it is nowhere."""
    column = next((c for part in PARTS if (c := f"{part}.{name}") in points.columns), None)
    return None if column is None else [value_text(value) for value in points[column]]


@dataclass(frozen=True, kw_only=True)
class Matches:
    """Points of two arms that were asked the same, pairwise by row."""

    rows: tuple[tuple[int, int], ...]
    names: tuple[str, ...]  # the axes that tell the pairs apart
    chosen: frozenset[str]  # settings in which the arms differ because they were chosen to
    alone: tuple[int, int]  # points of either arm without a partner


def matched(a: Arm, b: Arm, *, accept: Collection[str] = ()) -> Matches:
    """Pair the points that agree in load, workload and every axis but those chosen to differ.

    Two points that are chosen by their trials are a pair, whatever differs. No pair is an answer:
    `ComparisonError` is raised only where a point has several partners.
    """
    if TRIAL in a.where and TRIAL in b.where and len(a.points) == len(b.points) == 1:
        return Matches(rows=((0, 0),), names=(), chosen=frozenset(), alone=(0, 0))
    chosen = _chosen(a, b)
    foreign = OTHERS_NAMES if (a.run.origin is None) != (b.run.origin is None) else frozenset()
    names = [name for name in _key_names(a, b, accept) if name not in chosen | foreign]
    keys = [_keys(arm, names) for arm in (a, b)]
    places: dict[tuple[str, ...], int] = {}
    for row, key in enumerate(keys[1]):
        if key in places:
            raise _several(b, names, key)
        places[key] = row
    pairs = [(row, places[key]) for row, key in enumerate(keys[0]) if key in places]
    partners = [second for _, second in pairs]
    if len(set(partners)) < len(partners):
        raise _several(a, names, keys[1][max(partners, key=partners.count)])
    axes = [
        name
        for name in names
        if f"axis.{name}" in a.points
        and len({keys[0][row][names.index(name)] for row, _ in pairs}) > 1
    ]
    return Matches(
        rows=tuple(pairs),
        names=tuple(axes),
        chosen=frozenset(chosen),
        alone=(len(keys[0]) - len(pairs), len(keys[1]) - len(pairs)),
    )


def _chosen(a: Arm, b: Arm) -> set[str]:
    """Settings that the selections name, and engine settings that are one value on either side.

    A load or workload is never taken to differ on purpose unless it is named.
    """
    axes = {c.removeprefix("axis.") for arm in (a, b) for c in map(str, arm.points.columns)
            if c.startswith("axis.")}  # fmt: skip
    found = set()
    for name in {*a.where, *b.where, *axes}:
        first, second = (set(setting(arm.points, name) or ()) for arm in (a, b))
        named = name in a.where or name in b.where
        alone = len(first) == 1 and len(second) == 1 and not _is_asked(name, a, b)
        if first != second and (named or alone):
            found.add(name)
    return found


def _is_asked(name: str, *arms: Arm) -> bool:
    """Whether a setting is one of the load or workload."""
    return name in LOAD_FIELDS or any(f"workload.{name}" in arm.points for arm in arms)


def _key_names(a: Arm, b: Arm, accept: Collection[str]) -> list[str]:
    """Every axis that both arms know, and every workload field that both have."""
    excused = {name for accepted in accept for name in EXCUSED.get(accepted, ())}
    columns = [str(c) for arm in (a, b) for c in arm.points.columns]
    axes = dict.fromkeys(c.removeprefix("axis.") for c in columns if c.startswith("axis."))
    asked = dict.fromkeys(c.removeprefix("workload.") for c in columns if c.startswith("workload."))
    if "workload" in accept:
        asked = {name: None for name in asked if name in EXCUSED["load"]}
    if "slo" in accept:
        asked = {name: None for name in asked if not name.startswith("slo_")}
    return [
        name
        for name in {**axes, **asked}
        if name not in NOT_ASKED | excused
        and all(setting(arm.points, name) is not None for arm in (a, b))
    ]


def _keys(arm: Arm, names: list[str]) -> list[tuple[str, ...]]:
    columns = [setting(arm.points, name) or [] for name in names]
    return list(zip(*columns, strict=True)) if columns else [()] * len(arm.points)


def _several(arm: Arm, names: list[str], key: tuple[str, ...]) -> ComparisonError:
    cell = ", ".join(f"{name}={text}" for name, text in zip(names, key, strict=True))
    return ComparisonError(
        f"several points fit {cell or 'the comparison'}.",
        where=arm.label,
        remedy="Choose one by its settings, such as RUN:draft_length=5.",
    )


def _nearest(name: str, points: pd.DataFrame) -> str:
    parts = tuple(f"{part}." for part in PARTS)
    found = [str(c).partition(".")[2] for c in points.columns if str(c).startswith(parts)]
    known = list(dict.fromkeys(found))  # axes first
    return called(name, known, otherwise=f"The settings are {', '.join(known)}.")
