"""Environment: can these be compared?"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import streamlit as st

import workbench as wb
from dashboards import address, markup, parts, reading
from workbench.doctor import Finding, examine
from workbench.figures import MISSING, WITHOUT_A_GROUP, facts_beside, plural

MAX_RUNS = 4
TONES = {"ok": "passed", "warning": "invalid", "error": "failed"}


def main() -> None:
    """The manifests of a few runs side by side, what differs first; then this machine."""
    runs = parts.stored_runs()
    if not runs:
        return
    with st.sidebar:
        chosen = _chosen(runs)
    if not chosen:
        parts.html(markup.headline("Can these be compared?"))
        parts.html(markup.note("Choose one run or several at the side."))
    else:
        _manifests(chosen, runs)
    _doctor()


def _chosen(runs: dict[str, wb.RunSummary]) -> list[str]:
    """The runs of the address; the two newest by default."""
    asked = [name for name in (address.parameter("runs") or "").split(",") if name in runs]
    one = address.parameter("run")
    asked = asked or ([one] if one in runs else list(runs)[:2])
    picked = st.multiselect(
        "Runs", list(runs), default=asked[:MAX_RUNS], max_selections=MAX_RUNS,
        format_func=lambda name: parts.run_words(runs[name]), key="environment.runs",
    )  # fmt: skip
    address.remember("runs", ",".join(picked) or None)
    address.show("runs", ",".join(picked))
    return picked


def _manifests(chosen: list[str], runs: dict[str, wb.RunSummary]) -> None:
    found = facts_beside({name: reading.reader(name).run.environment for name in chosen})
    differing = found[found["differs"]]
    parts.html(markup.headline(_finding(len(chosen), len(found), len(differing)), _names(chosen)))
    if len(chosen) == 1:
        parts.html(markup.note("Choose a second run at the side to see what differs between them."))
    if len(chosen) == 2:
        link = address.link("compare", a=chosen[0], b=chosen[1])
        parts.html(markup.anchor("Compare their numbers", link))
    if not differing.empty:
        parts.html(markup.section("What differs"))
        parts.html(_table(differing, chosen, runs, grouped=True))
    for group, rows in found.groupby("group", sort=False):
        with st.expander(f"{str(group).capitalize()} ({len(rows)})"):
            parts.html(_table(rows, chosen, runs))


def _names(chosen: list[str]) -> list[str]:
    return [markup.anchor(name, address.link("run", run=name)) for name in chosen]


def _finding(runs: int, facts: int, differing: int) -> str:
    if runs == 1:
        return f"{plural(facts, 'fact')} of one run"
    if not differing:
        return f"All {facts:,} facts are the same in {runs} runs"
    return f"{differing:,} of {plural(facts, 'fact')} differ between {runs} runs"


def _fact_words(row: pd.Series, *, grouped: bool) -> str:
    fact = row["fact"].replace("_", " ")
    return f"{row['group']}: {fact}" if grouped and row["group"] != WITHOUT_A_GROUP else fact


def _table(
    rows: pd.DataFrame, chosen: list[str], runs: dict[str, wb.RunSummary], *, grouped: bool = False
) -> str:
    heads = ("Fact", *(parts.run_words(runs[name]) for name in chosen))
    reasons = rows.attrs.get("reasons", {})
    cells = [
        (
            markup.text(_fact_words(row, grouped=grouped), "name soft"),
            *(_fact(row[name], reasons.get((name, row["fact"]), "")) for name in chosen),
        )
        for _, row in rows.iterrows()
    ]
    return markup.table(heads, cells, ["set" if differs else "" for differs in rows["differs"]])


def _fact(text: str, reason: str) -> markup.Cell:
    if text == MISSING:
        small = f"<small>{markup.plain(reason)}</small>" if reason else ""
        return markup.Cell(html=f"{MISSING}{small}", kind="free soft", title=reason)
    return markup.text(text, "mark free")


def _doctor() -> None:
    parts.html(markup.section("This machine now, as workbench doctor finds it"))
    found = _findings(reading.store_path())
    order = {"error": 0, "warning": 1, "ok": 2}
    rows = [
        (
            markup.Cell(html=markup.pill_of(finding.level, TONES[finding.level])),
            markup.text(finding.subject, "name"),
            markup.text(finding.message, "free soft"),
        )
        for finding in sorted(found, key=lambda finding: order[finding.level])
    ]
    parts.html(markup.table(("", "What", "Finding"), rows))


@st.cache_data(show_spinner=False, ttl=60)
def _findings(store: str) -> list[Finding]:
    return examine(Path(store))


if __name__ == "__main__":
    main()
