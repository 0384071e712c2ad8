"""Manifests side by side: every fact of each run, and which of them differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from workbench.figures_text import MISSING, value_text

REASONS = "reasons"  # of a manifest: fact -> why there is none
WITHOUT_A_GROUP = "host and code"
MOVES = frozenset(
    {"processes", "load_average", "memory_available_bytes", "disk_free_bytes", "boot_time"}
)
"""Facts that differ from minute to minute, and say nothing of whether runs may be compared."""


def facts_beside(manifests: Mapping[str, Mapping[str, object]]) -> pd.DataFrame:
    """group, fact, one column of texts a run, differs; facts in their order, groups together.

    A fact that one run lacks differs from that of another. `.attrs["reasons"]` says by
    (run, group, fact) why a fact is missing, where the manifest says so.
    """
    flat = {name: dict(_flat(manifest)) for name, manifest in manifests.items()}
    keys = dict.fromkeys(key for facts in flat.values() for key in facts)
    rows = []
    for group, fact in sorted(keys, key=lambda key: (key[0] != WITHOUT_A_GROUP, *key)):
        texts = {name: facts.get((group, fact), MISSING) for name, facts in flat.items()}
        differs = len(set(texts.values())) > 1 and fact not in MOVES
        rows.append({"group": group, "fact": fact, **texts, "differs": differs})
    table = pd.DataFrame(rows, columns=["group", "fact", *manifests, "differs"])
    table.attrs["reasons"] = {
        (name, fact): str(why)
        for name, manifest in manifests.items()
        for fact, why in _mapping(manifest.get(REASONS)).items()
    }
    return table


def _flat(manifest: Mapping[str, object]) -> Iterator[tuple[tuple[str, str], str]]:
    for name, value in manifest.items():
        if name == REASONS:
            continue
        if isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
            for place, item in enumerate(value):
                yield from _group(f"{name} {place}", _mapping(item))
        elif isinstance(value, Mapping) and value:
            yield from _group(name, value)
        else:
            yield (WITHOUT_A_GROUP, name), _text(value)


def _group(name: str, facts: Mapping[str, object]) -> Iterator[tuple[tuple[str, str], str]]:
    for fact, value in facts.items():
        yield (name.replace("_", " "), str(fact)), _text(value)


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value)) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(item)}" for name, item in value.items()) or "none"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return value_text(value)
