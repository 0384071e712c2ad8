"""What is told before two sides are held against each other: what differs, and whose basis."""

from __future__ import annotations

import streamlit as st

import workbench as wb
from dashboards import address, markup, parts
from workbench.comparability import Difference

SEVERITIES = {"block": "failed", "warn": "invalid", "note": "skipped"}


def differences(found: wb.Comparison, accepted: tuple[str, ...]) -> None:
    """The comparability banner: what blocks, what may move numbers, what is only said."""
    if found.blocked:
        named = "; ".join(one.name.replace("_", " ") for one in found.blocked)
        parts.html(markup.banner([f"No delta is shown, because these differ: {named}"]))
        picked = st.multiselect(
            "Show deltas all the same, accepting that these differ",
            [one.name for one in found.differences if str(one.severity) == "block"],
            default=list(accepted), key="compare.accept",
        )  # fmt: skip
        if tuple(picked) != accepted:
            address.remember("accept", ",".join(picked) or None)
            st.rerun()
    rows = [
        (
            markup.Cell(html=markup.pill_of(_severity(one), SEVERITIES[str(one.severity)])),
            markup.text(one.sentence, "free"),
            markup.text(one.a, "free soft"),
            markup.text(one.b, "free soft"),
        )
        for one in found.differences
    ]
    title = f"What differs ({len(rows)})" if rows else "Nothing that is recorded differs"
    with st.expander(title, expanded=bool(found.blocked)):
        if rows:
            parts.html(markup.table(("", "Difference", "A", "B"), rows))


def bases(found: wb.Comparison) -> None:
    """Of another tool's result: how either side came by its numbers, and what has no partner."""
    told, apart = found.bases, found.apart
    if told.empty and apart.empty:
        return
    with st.expander(f"How either side came by its numbers ({len(told)} metrics)"):
        cells = [
            (markup.text(row.label, "name"), markup.text(row.a, "free soft"),
             markup.text(row.b, "free soft"))
            for row in told.itertuples()
        ]  # fmt: skip
        parts.html(markup.table(("Metric", "A", "B"), cells))
    if apart.empty:
        return
    with st.expander(f"What is not comparable, and why ({len(apart)} metrics)"):
        cells = [
            (markup.text(row.label, "name"), markup.text(row.why, "free soft"))
            for row in apart.itertuples()
        ]
        parts.html(markup.table(("Metric", "Why"), cells))


def _severity(one: Difference) -> str:
    return f"{one.severity}, accepted" if one.accepted else str(one.severity)
