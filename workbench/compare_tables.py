"""A comparison on a terminal: what differs, what that did, and what would be needed to see more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.catalogue import METRICS
from workbench.cli_output import has_room, say, show_table
from workbench.compare_words import ESTIMATES, ONE_REPEAT, change_words
from workbench.effects import Basis
from workbench.figures_text import MISSING, UNKNOWN, interval, number
from workbench.spreads import TOO_FEW, too_wide

if TYPE_CHECKING:
    import pandas as pd

    from workbench.comparability import Difference
    from workbench.compare import Comparison
    from workbench.compare_gate import Gated
    from workbench.confirm import Confirmation

ALONE = "not judged"
STYLES = {"block": "red", "warn": "yellow", "note": None}


def show_comparison(found: Comparison) -> None:
    """The banner of differences, then the tables unless something blocks them."""
    say(f"A: {found.a.label}")
    say(f"B: {found.b.label}")
    show_differences(found)
    if found.blocked:
        return
    pairs = len(found.matches.rows)
    alone = [f"{count} of {side}" for side, count in zip("AB", found.matches.alone, strict=True)
             if count]  # fmt: skip
    left = f"; without a partner: {', '.join(alone)}" if alone else ""
    say(f"{pairs} matched point{'s' if pairs != 1 else ''}{left}")
    _show("B against A" if pairs == 1 else "B against A, all points together", found.overall)
    show_bases(found)
    if (found.overall["basis"] == Basis.WITHIN_RUN).any():
        say(ONE_REPEAT, style="yellow")
    if pairs > 1:
        for name in found.metrics[: 3 if has_room() else 1]:
            rows = found.points[found.points["metric"] == name]
            _show(f"{METRICS[name].heading}, point by point", rows, by="point")
    if found.overall["basis"].isin([Basis.PAIRED, Basis.APART]).any():
        say(ESTIMATES)


def show_bases(found: Comparison) -> None:
    """Of another tool's result: what its numbers mean, and which have no partner."""
    rows = [tuple(map(str, row)) for row in found.bases[["label", "a", "b"]].to_numpy()]
    if rows:
        show_table("how either side came by it", ("metric", "A", "B"), rows)
        for row in found.apart.itertuples():
            say(f"not comparable: {row.label}: {row.why}")


def show_differences(found: Comparison) -> None:
    """One line a difference, blocks first; settings that one side alone has share a line."""
    alone = [one for one in found.differences if _is_of_one_side(one)]
    for one in found.differences:
        if one in alone:
            continue
        severity = f"{one.severity} (accepted)" if one.accepted else str(one.severity)
        say(f"{severity}: {one.sentence}", style=STYLES[one.severity])

    for label, other in (("A", "B"), ("B", "A")):
        told = [f"{d.name} {getattr(d, label.lower())}" for d in alone if _lacks(d, other)]
        if told:
            say(f"note: Settings of {label} that {other} does not tell: {'; '.join(told)}.")


def _is_of_one_side(found: Difference) -> bool:
    """Another engine's settings have other names: no change, and too many for a line each."""
    is_setting = str(found.severity) == "note" and found.sentence.startswith("The setting")
    return is_setting and UNKNOWN in (found.a, found.b)


def _lacks(found: Difference, label: str) -> bool:
    return getattr(found, label.lower()) == UNKNOWN


def show_gate(found: Gated) -> None:
    """The rows that decide, with what they rest on."""
    spec = METRICS[found.metric]
    rows = [(row.where, str(row.state), row.sentence) for row in found.rows]
    title = f"gate: {spec.label} may be at most {found.threshold * 100:g} % worse"
    show_table(title, ("where", "result", "why"), rows, whole=("result",))
    say(found.summary, style="red" if found.failed else None if found.decided else "yellow")


def difference_rows(found: Comparison) -> list[dict[str, object]]:
    """The differences for a program."""
    return [
        {name: getattr(one, name) for name in one.__dataclass_fields__} for one in found.differences
    ]


def _show(title: str, table: pd.DataFrame, by: str = "label") -> None:
    values = "a" in table and table["a"].notna().any()
    headers = (by, *(("A", "B") if values else ()), "B/A", "what it comes to")
    rows = [
        (
            str(row[by]),
            *((number(row["a"]), number(row["b"])) if values else ()),
            MISSING if row["ratio"] is None or row["ratio"] != row["ratio"]
            else change_words(row["ratio"]),
            str(row["sentence"]),
        )
        for _, row in table.iterrows()
    ]  # fmt: skip
    show_table(title, headers, rows)


def show_confirmation(found: Confirmation) -> None:
    """What is left of each point and of all of them."""
    table = found.points
    metrics = [one.metric for one in found.shrinkage]
    headers = ("point", *(f"{METRICS[name].heading}" for name in metrics), "on front")
    rows = [
        (
            str(row["point"]),
            *(_confirmed(row, name) for name in metrics),
            ALONE if row["on_front"] is None else "still" if row["on_front"] else "no more",
        )
        for _, row in table.iterrows()
    ]
    show_table(f"claimed by {found.parent}, then measured again", headers, rows)
    if any(told is None for told in table["on_front"]):
        say(f"{ALONE}: a point that alone was measured again has no other to compete with")
    for one in found.shrinkage:
        say(one.sentence, style="yellow" if one.shifted else None)


def _confirmed(row: pd.Series, metric: str) -> str:
    """`120, then 117 (112 to 122)`."""
    low, high = row[f"{metric}.low"], row[f"{metric}.high"]
    spread = TOO_FEW if too_wide(low, high) else interval(low, high)
    again = number(row[f"{metric}.confirmed"])
    return f"{number(row[metric])}, then {again}{f' ({spread})' if spread else ''}"
