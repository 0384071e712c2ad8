"""Every format that can be imported, and which of them a file is."""

from __future__ import annotations

import re

from workbench.importers import (
    aiperf,
    aiperf_aggregate,
    aiperf_records,
    evalscope,
    genai_bench,
    guidellm,
    inference_perf,
    inferencex,
    kernel_bench,
    kernel_check,
    llm_d,
    llmperf,
    mlperf,
    points_csv,
    sglang,
    step_bench,
    vllm,
)
from workbench.importers.document import LISTED, Document, Form, unknown
from workbench.importers.foreign import Format

MODULES = (
    kernel_bench, kernel_check, step_bench, inferencex, sglang, vllm, aiperf, aiperf_aggregate,
    aiperf_records, guidellm, inference_perf, llmperf, evalscope, genai_bench, mlperf, llm_d,
    points_csv,
)  # fmt: skip
FORMATS: tuple[Format, ...] = tuple(one for module in MODULES for one in module.FORMATS)
"""In the order in which they are tried: the first that recognises a file reads it."""

NAMES = re.compile(r"`(\w+)`")  # in what a format is recognised by
LEAST_ALIKE = 2  # names that a document shares with a format that a message tells
MOST_KEYS = 12  # that a message names


def format_of(document: Document) -> Format:
    """The format of a file; UnknownFileError names what was found and what is expected."""
    for one in FORMATS:
        if one.recognises(document):
            return one
    raise unknown(
        document.path,
        f"is {document.form} of no tool that is known: it holds {found_words(document)}.",
        f"{_closest_words(document)}{LISTED}",
    )


def _closest_words(document: Document) -> str:
    """The formats that share most names with the document, as its tool may have changed one."""
    found = {str(name) for name in _keys(document.value)}
    shared = {one.title: len(found & {*NAMES.findall(one.expects)}) for one in FORMATS}
    most = max(shared.values())
    if most < LEAST_ALIKE:
        return ""
    alike = [one for one in FORMATS if shared[one.title] == most]
    return f"Closest is {'; '.join(f'{one.title} ({one.expects})' for one in alike[:2])}. "


def _keys(value: object) -> list[object]:
    """The names at the top of a document, or of the first row of a list; the first row of CSV."""
    if isinstance(value, list):
        return _keys(value[0]) if value and isinstance(value[0], dict) else _cells(value)
    return list(value) if isinstance(value, dict) else []


def _cells(value: list[object]) -> list[object]:
    return value[0] if value and isinstance(value[0], list) else []


def found_words(document: Document) -> str:
    """What stands in a document, in a few words."""
    value = document.value
    if document.form is Form.CSV and isinstance(value, list):
        return f"the columns {_some(value[0] if value else [])}"
    if isinstance(value, dict):
        return f"the keys {_some(list(value))}"
    if isinstance(value, list):
        first = value[0] if value else None
        keys = f", the first with the keys {_some(list(first))}" if isinstance(first, dict) else ""
        return f"{len(value):,} items{keys}"
    return "nothing" if value is None else f"a {type(value).__name__} alone"


def _some(names: list[object]) -> str:
    told = ", ".join(repr(str(name)[:40]) for name in names[:MOST_KEYS])
    return f"{told or 'none'}{', ...' if len(names) > MOST_KEYS else ''}"
