"""From a workload as a plan writes it to one that can be asked for requests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from experiments.content import Content, TextIds
from experiments.errors import WorkloadError
from experiments.targets.base import TargetFacts
from experiments.trace_workload import prepare_trace
from experiments.traces import json_rows, read_text
from experiments.workload import SyntheticWorkload, TextWorkload, Workload, check_fit, random_ids
from experiments.workload_specs import (
    SyntheticSpec,
    TextSpec,
    TraceSpec,
    WorkloadSpec,
    opened,
)


def prepare(spec: WorkloadSpec, facts: TargetFacts, encode: Callable[[str], list[int]]) -> Workload:
    """Read what the workload needs and fit it to the model.

    WorkloadError where a file is damaged or a request cannot fit the context.
    """
    if isinstance(spec, SyntheticSpec):
        return SyntheticWorkload(spec=spec, facts=facts)
    if isinstance(spec, TraceSpec):
        return prepare_trace(spec, facts, _content(spec, facts, encode))
    return _prepare_text(spec, facts, encode)


def _prepare_text(
    spec: TextSpec, facts: TargetFacts, encode: Callable[[str], list[int]]
) -> TextWorkload:
    path = opened(spec.path)
    texts = _texts(path)
    prompts = [encode(text) for text in texts] if _is_jsonl(path) else _cut(spec, encode(texts[0]))
    if spec.prompt_tokens is not None:
        prompts = [prompt[: spec.prompt_tokens] for prompt in prompts]
    prompts = [prompt for prompt in prompts if prompt]
    if not prompts:
        raise WorkloadError("has no prompt", where=str(path))
    longest = max(len(prompt) for prompt in prompts)
    check_fit(
        longest + spec.output_tokens, facts, f"workload {spec.name}", "Set or lower prompt_tokens."
    )
    return TextWorkload(spec=spec, facts=facts, prompts=tuple(tuple(p) for p in prompts))


def _cut(spec: TextSpec, ids: list[int]) -> list[list[int]]:
    if spec.prompt_tokens is None:
        return [ids]
    size = spec.prompt_tokens
    whole = len(ids) - len(ids) % size if len(ids) >= size else len(ids)
    return [ids[start : start + size] for start in range(0, whole, size)]


def _content(spec: TraceSpec, facts: TargetFacts, encode: Callable[[str], list[int]]) -> Content:
    if spec.content is None:
        return random_ids(facts)
    path = opened(spec.content)
    ids = [token_id for text in _texts(path) for token_id in encode(text)]
    if not ids:
        raise WorkloadError("has no text", where=str(path))
    return TextIds(stream=np.array(ids, dtype=np.int64))


def _is_jsonl(path: Path) -> bool:
    return path.suffix == ".jsonl"


def _texts(path: Path) -> list[str]:
    """The prompts of a JSONL file, or the one text of any other."""
    text = read_text(path)
    if not _is_jsonl(path):
        return [text]
    prompts = []
    for place, row in json_rows(path, text.split("\n")):
        prompt = row.get("prompt")
        if not isinstance(prompt, str):
            raise WorkloadError("has no text field `prompt`", where=place)
        prompts.append(prompt)
    return prompts
