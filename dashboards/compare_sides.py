"""The two sides of a comparison, as the address and the controls choose them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import streamlit as st

import workbench as wb
from dashboards import address, controls, parts, reading
from workbench.arms import TRIAL, against_reference
from workbench.figures import levels, varied

MAX_POINTS = 200  # that a page lists
MOST_TRIED = 8  # pairs
MOST_BEFORE = 3  # runs of one plan
ARM_AXIS = "arm"
SIDES = ("a", "b")
OF_DRAFTS = ("RUN:draft_length=0", "RUN:draft_length=5")


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


def take_from_address() -> None:
    """Keep `a=RUN:setting=value,...`, as the command line writes a side, as the controls do."""
    for name in SIDES:
        run_id, colon, where = (address.parameter(name) or "").partition(":")
        if colon:
            address.remember(name, run_id)
            address.remember(f"{name}_where", where)


def example(run_id: str) -> str:
    """A command that holds two sides of this run against each other: its arms, where it has any."""
    pair = next(_arms(run_id), None)
    sides = [f"{run_id}:{side.where[0]}" for side in pair] if pair is not None else OF_DRAFTS
    return " ".join(["workbench compare", *sides])


def chosen(name: str, runs: dict[str, wb.RunSummary]) -> Side:
    """One side as the address has it; at first the first pair that may be compared.

    Of the run that the address names, where it names one.
    """
    label = name.upper()
    named = address.parameter("run")
    order = [*([named] if named in runs else []), *(one for one in runs if one != named)]
    side = _at_first(reading.store_path(), tuple(order), runs)[SIDES.index(name)]
    default = side.run_id
    preset = [] if any(map(address.parameter, SIDES)) else [*side.where]  # of that pair alone
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


@st.cache_data(show_spinner=False, ttl=60)
def _at_first(
    store: str, names: tuple[str, ...], _runs: dict[str, wb.RunSummary]
) -> tuple[Side, Side]:
    """Of the first pairs one that may be compared; where there is none, the first.

    Where there is no pair, the first run twice.
    """
    del store
    newest = Side(run_id=names[0], where=())
    pairs = list(itertools.islice(_pairs(names, _runs), MOST_TRIED)) or [(newest, newest)]
    return next((pair for pair in pairs if _is_comparable(*pair)), pairs[0])


def _pairs(names: Sequence[str], runs: dict[str, wb.RunSummary]) -> Iterator[tuple[Side, Side]]:
    """From the first run on: its arms, then it after those of its plan before it, then two of its
    settings."""
    for place, newest in enumerate(names):
        yield from _arms(newest)
        whole = Side(run_id=newest, where=())
        before = [name for name in names[place + 1 :] if runs[name].name == runs[newest].name]
        yield from ((Side(run_id=name, where=()), whole) for name in before[:MOST_BEFORE])
        yield from _ends(newest)


def _arms(run_id: str) -> Iterator[tuple[Side, Side]]:
    """Each arm of a run and the reference; nothing for a run without arms."""
    reader = reading.reader(run_id)
    names = levels(reader.trials(), f"axis.{ARM_AXIS}")
    for pair in against_reference(reader.run, names):
        a, b = (Side(run_id=run_id, where=(f"{ARM_AXIS}={name}",)) for name in pair)
        yield a, b


def _ends(run_id: str) -> Iterator[tuple[Side, Side]]:
    """The first and the last value of each setting that varies, the draft length first."""
    values: dict[str, list[str]] = {}
    for text in _settings(run_id):
        values.setdefault(text.partition("=")[0], []).append(text)
    for name in sorted(values, key=lambda name: name != "draft_length"):
        first, last = values[name][0], values[name][-1]
        if first != last:
            yield Side(run_id=run_id, where=(first,)), Side(run_id=run_id, where=(last,))


def _is_comparable(a: Side, b: Side) -> bool:
    try:
        return not wb.compare(a.arm(), b.arm()).blocked
    except wb.BenchError:
        return False
