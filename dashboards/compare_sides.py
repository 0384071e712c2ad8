"""The two sides of a comparison, as the address and the controls choose them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st

import workbench as wb
from dashboards import address, controls, parts, reading
from workbench.arms import TRIAL
from workbench.figures import levels, varied

MAX_POINTS = 200  # that a page lists


@dataclass(frozen=True, kw_only=True)
class Side:
    """A run and the settings that its points are chosen by."""

    run_id: str
    where: tuple[str, ...]  # "setting=value"

    def arm(self) -> wb.Arm:
        """The points that are meant."""
        pairs = (text.partition("=") for text in self.where)
        return wb.Arm(
            run=reading.reader(self.run_id).run, where={name: value for name, _, value in pairs}
        )


def chosen(name: str, runs: dict[str, wb.RunSummary]) -> Side:
    """One side as the address has it; at first two runs of one plan, or two values of an axis."""
    label = name.upper()
    default, preset = _defaults(runs)[name]
    picked = address.choose(
        label, list(runs), name, default=default, words=lambda n: parts.run_words(runs[n])
    )
    options = [*_settings(picked), *_single_points(picked)]
    asked = address.parameter(f"{name}_where")
    texts = asked.split(",") if asked is not None else preset if picked == default else []
    where = st.multiselect(
        f"Only points of {label} with", options, default=[t for t in texts if t in options],
        key=f"compare.{name}.{picked}", placeholder="all", format_func=_in_words(picked),
    )  # fmt: skip
    address.remember(f"{name}_where", ",".join(where) if where != preset else None)
    address.show(f"{name}_where", ",".join(where))
    return Side(run_id=picked, where=tuple(where))


def _settings(run_id: str) -> list[str]:
    trials = reading.reader(run_id).trials()
    return [
        f"{axis.removeprefix('axis.')}={value}"
        for axis in varied(trials)
        if len(found := levels(trials, axis)) <= controls.MAX_VALUES
        for value in found
        if "," not in value
    ]


def _single_points(run_id: str) -> list[str]:
    """Each valid point by its trial: one on either side makes a difference of two points."""
    points = reading.reader(run_id).points()
    ids = points.loc[points["valid"].astype(bool), "trial_id"]
    return [f"{TRIAL}={name}" for name in ids.head(MAX_POINTS)]


def _in_words(run_id: str) -> Callable[[str], str]:
    """A setting as it is; a single point by its cell."""
    trials = reading.reader(run_id).trials()
    names = controls.trial_names(trials, trials)

    def words(text: str) -> str:
        name, _, value = text.partition("=")
        return f"only {names.get(value, value)}" if name == TRIAL else text

    return words


def _defaults(runs: dict[str, wb.RunSummary]) -> dict[str, tuple[str, list[str]]]:
    newest = next(iter(runs))
    before = [name for name in runs if name != newest and runs[name].name == runs[newest].name]
    if before:
        return {"a": (before[0], []), "b": (newest, [])}
    options = _settings(newest)
    names = dict.fromkeys(text.partition("=")[0] for text in options)
    chosen = next((name for name in ("draft_length", *names) if name in names), None)
    first = [text for text in options if text.partition("=")[0] == chosen]
    return {"a": (newest, first[:1]), "b": (newest, first[-1:])}
