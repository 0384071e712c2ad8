"""A workload as a plan writes it: synthetic lengths, traces or texts."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from experiments.border import Border, brief, nearest
from experiments.errors import WorkloadError

SAMPLES = {
    "azure": "azure_code_2023_head300.csv",
    "mooncake": "mooncake_conversation_head120.jsonl",
    "texts": "texts_heldout.jsonl",
}
_SAMPLE = "sample:"


class _Spec(Border):
    name: str = Field(min_length=1)
    exact_output_length: bool = True
    """Go on past the end-of-sequence token, so that every request yields what it asked for."""
    temperature: float = Field(default=0.0, ge=0)


class SyntheticSpec(_Spec):
    """Random token ids; lengths are uniform within `spread` (0.5: half to one and a half)."""

    kind: Literal["synthetic"]
    prompt_tokens: int = Field(default=64, ge=1)
    output_tokens: int = Field(default=16, ge=1)
    spread: float = Field(default=0.0, ge=0, lt=1)


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
    """Prompts from a UTF-8 file (cut into `prompt_tokens`) or a JSONL with the field `prompt`."""

    kind: Literal["text"]
    path: str
    prompt_tokens: int | None = Field(default=None, ge=1)  # None: whole prompts, JSONL only
    output_tokens: int = Field(default=32, ge=1)
    exact_output_length: bool = False


WorkloadSpec = Annotated[SyntheticSpec | TraceSpec | TextSpec, Field(discriminator="kind")]


def resolved_source(spec: WorkloadSpec, base_dir: Path | None) -> WorkloadSpec:
    """The same workload with absolute paths. WorkloadError for an unknown sample name."""
    if isinstance(spec, SyntheticSpec):
        return spec
    found = {name: getattr(spec, name, None) for name in ("path", "content")}
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
