"""The environment of a run: each fact of its host, or why the host does not give it."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from dashboards import markup, parts
from workbench.figures import plural, value_text

REASONS = "reasons"  # of the manifest: fact -> why there is none


def whole(found: Mapping[str, object]) -> None:
    """The manifest as tables: plain facts first, then each group of facts, then what is missing."""
    if not found:
        parts.html(markup.note("No environment was recorded."))
        return
    groups = {name: value for name, value in found.items() if _is_group(name, value)}
    missing = [name for name in found if found[name] is None]
    plain = [name for name in found if name not in (*groups, *missing, REASONS)]
    parts.html(_table({name: found[name] for name in sorted(plain)}))
    for name, group in sorted(groups.items()):
        with st.expander(f"{_words(name).capitalize()} ({len(group)})"):
            parts.html(_table(group))
    if missing:
        with st.expander(f"{plural(len(missing), 'fact')} that this host does not give, and why"):
            parts.html(_missing(sorted(missing), found.get(REASONS)))


def _is_group(name: str, value: object) -> bool:
    return isinstance(value, Mapping) and bool(value) and name != REASONS


def _table(facts: Mapping[str, object]) -> str:
    rows = [
        (markup.text(_words(name), "soft"), markup.text(_value(value), "free"))
        for name, value in facts.items()
    ]
    return markup.table(("Fact", "Value"), rows)


def _missing(names: list[str], reasons: object) -> str:
    told = reasons if isinstance(reasons, Mapping) else {}
    rows = [
        (
            markup.text(_words(name), "soft"),
            markup.text(told.get(name, "no reason was recorded"), "free"),
        )
        for name in names
    ]
    return markup.table(("Fact", "Why there is none"), rows)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _value(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(_value(item) for item in value) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_value(item)}" for name, item in value.items())
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return value_text(value)
