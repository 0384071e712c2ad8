"""A workload as a plan writes it: synthetic lengths, traces, texts or evals."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from experiments.border import MOST_SHOWN, Border, brief
from experiments.errors import WorkloadError
from kernels.near_names import nearest

SAMPLES = {
    "azure": "azure_code_2023_head300.csv",
    "mooncake": "mooncake_conversation_head120.jsonl",
    "texts": "texts_heldout.jsonl",
    "turns": "srt_slurm_turns.jsonl",
}
_SAMPLE = "sample:"
JSONL = ".jsonl"
"""How the name of a set ends that is a file."""


def as_schema(value: object) -> object:
    """A JSON schema written as a mapping or as JSON text, as canonical text."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"is no JSON: {str(error)[:MOST_SHOWN]}") from error
    if not isinstance(value, dict):
        what = f"is {brief(value)}, not a JSON schema (a mapping)"
        raise ValueError(what)  # noqa: TRY004 - the error that pydantic reads
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


class _Spec(Border):
    name: str = Field(min_length=1)
    exact_output_length: bool = True
    """Go on past the end-of-sequence token, so that every request yields what it asked for."""
    temperature: float = Field(default=0.0, ge=0)
    grammar: str | None = None  # EBNF that every output follows
    json_schema: Annotated[str | None, BeforeValidator(as_schema)] = None

    @model_validator(mode="after")
    def _one_grammar(self) -> Self:
        if self.grammar is not None and self.json_schema is not None:
            raise ValueError("takes a grammar or a json_schema, not both")
        return self

    @property
    def so_args(self) -> dict[str, str] | None:
        """The structured output that a request asks for, as `SamplingParams.so_args` has it."""
        if self.json_schema is not None:
            return {"schema_type": "json", "schema": self.json_schema}
        return None if self.grammar is None else {"schema_type": "ebnf", "schema": self.grammar}


class SyntheticSpec(_Spec):
    """Stated lengths, uniform within `spread` (0.5: half to one and a half); random ids or text.

    With `prefix_hit` that share of every prompt's tokens, from its first on, is the same in all
    prompts of a trial, the warm-up's too: an ideal prefix cache hits just that share. One token
    at least is the prompt's own.
    """

    kind: Literal["synthetic"]
    prompt_tokens: int = Field(default=64, ge=1)
    output_tokens: int = Field(default=16, ge=1)
    spread: float = Field(default=0.0, ge=0, lt=1)
    content: str | None = None  # a text or JSONL file to cut prompts from; None: random ids
    prefix_hit: float | None = Field(default=None, ge=0, lt=1)


class TraceSpec(_Spec):
    """Lengths, arrival times and shared prefixes of real traces, filled with random ids or text.

    Several files are dealt out in turn. Both lengths of every row are multiplied by one factor
    a file: `auto` is the largest, at most 1, with which its longest row fits the context.
    """

    kind: Literal["trace"]
    path: str | list[str]
    content: str | None = None  # a text or JSONL file to cut prompts from; None: random ids
    scale: Literal["auto"] | float = "auto"
    min_prompt_tokens: int = Field(default=1, ge=1)
    min_output_tokens: int = Field(default=1, ge=1)
    max_rows: int | None = Field(default=None, ge=1)


class TextSpec(_Spec):
    """Prompts from a UTF-8 file (cut into `prompt_tokens`), or from a JSONL.

    A JSONL row has `prompt` (a text) or `messages` (chat turns, rendered in the
    checkpoint's chat form), and may have `output_tokens` of its own.
    """

    kind: Literal["text"]
    path: str
    prompt_tokens: int | None = Field(default=None, ge=1)  # None: whole prompts, JSONL only
    output_tokens: int = Field(default=32, ge=1)
    exact_output_length: bool = False


class EvalSpec(_Spec):
    """Every question of a set, `samples` times each, answered and judged."""

    kind: Literal["eval"]
    set: str = Field(min_length=1)  # a name of experiments.evals.sets, or a JSONL file
    output_tokens: int = Field(default=512, ge=1)  # the most
    exact_output_length: Literal[False] = False  # an answer ends where it ends
    samples: int = Field(default=1, ge=1, le=1000)
    pass_k: int | None = Field(default=None, ge=1)  # of pass@k; None: samples
    max_questions: int | None = Field(default=None, ge=1)  # the first of the set; None: all
    shuffle_seed: int = Field(default=0, ge=0)  # of the order of choices
    thinking: bool = False  # let the model think first, in its chat form
    judge: Literal["rules", "llm"] = "rules"
    allow_code: bool = False  # run what the model wrote
    limit_s: float = Field(default=3600.0, gt=0)

    @model_validator(mode="after")
    def _enough_samples(self) -> Self:
        if self.pass_k is not None and self.pass_k > self.samples:
            raise ValueError(f"pass_k is {self.pass_k}, more than {self.samples} samples")
        return self


WorkloadSpec = Annotated[
    SyntheticSpec | TraceSpec | TextSpec | EvalSpec, Field(discriminator="kind")
]


def resolved_source(spec: WorkloadSpec, base_dir: Path | None) -> WorkloadSpec:
    """The same workload with absolute paths. WorkloadError for an unknown sample name."""
    found = {name: getattr(spec, name, None) for name in ("path", "content")}
    if isinstance(spec, EvalSpec) and spec.set.endswith(JSONL):
        found["set"] = spec.set
    return spec.model_copy(
        update={name: _all_located(path, base_dir) for name, path in found.items() if path}
    )


def _all_located(path: str | list[str], base_dir: Path | None) -> str | list[str]:
    if isinstance(path, str):
        return _located(path, base_dir)
    return [_located(one, base_dir) for one in path]


def _located(path: str, base_dir: Path | None) -> str:
    if not path.startswith(_SAMPLE):
        try:
            return str(((base_dir or Path.cwd()) / Path(path).expanduser()).resolve())
        except (ValueError, RuntimeError, OSError) as error:  # a NUL, an unknown ~user, a loop
            what = f"{brief(path)} is no path: {error}"
            raise WorkloadError(what, where="workloads.path") from error
    name = path.removeprefix(_SAMPLE)
    if name not in SAMPLES:
        raise WorkloadError(
            f"there is no sample {brief(name)}",
            where="workloads.path",
            remedy=nearest(name, SAMPLES),
        )
    return path


def opened(path: str) -> Path:
    """Where a file lies.

    A sample keeps its name in the plan, so that a stored plan reads back on any machine.
    """
    if path.startswith(_SAMPLE):
        return Path(str(files("experiments.samples") / SAMPLES[path.removeprefix(_SAMPLE)]))
    return Path(path)
