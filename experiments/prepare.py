"""From a workload as a plan writes it to one that can be asked for requests."""

from __future__ import annotations

import numpy as np

from experiments.chat import ChatForm, Encode
from experiments.content import Content, TextIds
from experiments.errors import WorkloadError
from experiments.evals.workload import prepare_eval
from experiments.targets.base import TargetFacts
from experiments.text_rows import TextRow, is_jsonl, text_rows
from experiments.trace_workload import prepare_trace
from experiments.workload import SyntheticWorkload, TextWorkload, Workload, random_ids
from experiments.workload_specs import (
    EvalSpec,
    SyntheticSpec,
    TextSpec,
    TraceSpec,
    WorkloadSpec,
    opened,
)


def prepare(spec: WorkloadSpec, facts: TargetFacts, encode: Encode) -> Workload:
    """Read what the workload needs and fit it to the model.

    WorkloadError where a file is damaged, a request cannot fit the context, or the engine takes
    no grammar and the workload has one.
    """
    if spec.so_args is not None and not facts.takes_grammars:
        raise WorkloadError(
            "asks for structured output, which this engine does not have yet",
            where=f"workload {spec.name}: {'grammar' if spec.grammar else 'json_schema'}",
            remedy="Take the field out.",
        )
    if isinstance(spec, SyntheticSpec):
        return SyntheticWorkload(spec=spec, facts=facts, content=_content(spec, facts, encode))
    if isinstance(spec, EvalSpec):
        return prepare_eval(spec, facts, encode)
    if isinstance(spec, TraceSpec):
        return prepare_trace(spec, facts, _content(spec, facts, encode))
    return _prepare_text(spec, facts, encode)


def _prepare_text(spec: TextSpec, facts: TargetFacts, encode: Encode) -> TextWorkload:
    path = opened(spec.path)
    rows = text_rows(path, ChatForm(facts=facts, encode=encode))
    if not is_jsonl(path):
        rows = _cut(spec, rows[0])
    if spec.prompt_tokens is not None:
        rows = [TextRow(row.prompt[: spec.prompt_tokens], row.output_tokens) for row in rows]
    rows = [row for row in rows if row.prompt]
    if not rows:
        raise WorkloadError("has no prompt", where=str(path))
    return TextWorkload(
        spec=spec,
        facts=facts,
        prompts=tuple(row.prompt for row in rows),
        output_tokens=tuple(row.output_tokens or spec.output_tokens for row in rows),
    )


def _cut(spec: TextSpec, whole: TextRow) -> list[TextRow]:
    if spec.prompt_tokens is None:
        return [whole]
    size, ids = spec.prompt_tokens, whole.prompt
    used = len(ids) - len(ids) % size if len(ids) >= size else len(ids)
    return [TextRow(ids[start : start + size], None) for start in range(0, used, size)]


def _content(spec: SyntheticSpec | TraceSpec, facts: TargetFacts, encode: Encode) -> Content:
    if spec.content is None:
        return random_ids(facts)
    path = opened(spec.content)
    ids = [
        token_id
        for row in text_rows(path, ChatForm(facts=facts, encode=encode))
        for token_id in row.prompt
    ]
    if not ids:
        raise WorkloadError("has no text", where=str(path))
    return TextIds(stream=np.array(ids, dtype=np.int64))
