"""EngineConfig: what a user may choose, checked once, and what it comes to for one model.

mapping (flags, YAML, DEEPINFER_*)  ->  EngineConfig        checks that need no model
EngineConfig + facts of the model   ->  ResolvedConfig      no `auto` left: `engine.resolution`
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING

from engine import checks
from engine.choices import (
    AcceleratorKind,
    AdmissionMode,
    CacheFormat,
    GraphMode,
    KernelChoice,
    Precision,
    ReplayMode,
    WeightFormat,
)
from engine.config_rules import CHOICES, checked, says
from engine.environment import read_fields, warn_of_ignored
from engine.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from dataclasses import Field


ConfigValue = str | int | float | None


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """Everything a user may choose about an engine. ConfigError names the field and remedy.

    `describe_fields` lists the fields with a sentence each. Enumerations accept their string.
    """

    model: str = field(metadata=says("Checkpoint directory, or the name of a shipped one."))
    dtype: Precision = field(
        default=Precision.AUTO,
        metadata=says("Arithmetic: auto is float32 on a CPU, bfloat16 on an accelerator."),
    )
    cache_format: CacheFormat = field(
        default=CacheFormat.AUTO,
        metadata=says(
            "Cache rows: auto is plain on a CPU, released on an accelerator; a model whose "
            "release has plain rows has no others."
        ),
    )
    weights: WeightFormat = field(
        default=WeightFormat.AUTO,
        metadata=says(
            "Matrices of a quantised checkpoint: dequantised, packed, or released (packed, and "
            "products round their inputs as the release does); auto is released where Triton "
            "kernels run in bfloat16, else dequantised."
        ),
    )
    accelerator: AcceleratorKind = field(
        default=AcceleratorKind.AUTO,
        metadata=says("Device kind: auto is cuda where there is one, else cpu."),
    )
    kernels: KernelChoice = field(
        default=KernelChoice.AUTO,
        metadata=says(
            "Kernels: auto is the fastest that suits the device, reference the plain definitions, "
            "triton refuses a device without them."
        ),
    )
    draft_length: int | None = field(
        default=None,
        metadata=says(
            "Tokens drafted a step, 0 for none; None is the model's draft block.", least=0
        ),
    )
    replay_mode: ReplayMode = field(
        default=ReplayMode.COMPACT,
        metadata=says("Decoder truncation of prompts: off, mask (the oracle) or compact."),
    )
    replay_keep_tokens: int | None = field(
        default=None,
        metadata=says("Prompt rows that run the decoder half; None is the window + 12.", least=1),
    )
    max_backtrack_tokens: int = field(
        default=0, metadata=says("Tokens that a caller may roll back.", least=0)
    )
    data_parallel_size: int = field(
        default=1,
        metadata=says("Replicas, each a process with its own model.", least=1, most=1024),
    )
    max_num_seqs: int = field(
        default=256, metadata=says("Most sequences running at once in a replica.", least=1)
    )
    max_num_batched_tokens: int = field(
        default=2048, metadata=says("Most tokens run in one step.", least=1)
    )
    prefill_chunk_tokens: int | None = field(
        default=None,
        metadata=says("Prompt tokens of a sequence in a step; None is what others leave.", least=1),
    )
    admission: AdmissionMode = field(
        default=AdmissionMode.PREDICTED,
        metadata=says("Start what is predicted to fit until its end, or (greedy) fits now."),
    )
    overlap: bool = field(
        default=True,
        metadata=says(
            "Plan and settle on the host while the device runs; false, or a CPU, is in line."
        ),
    )
    graphs: GraphMode = field(
        default=GraphMode.AUTO,
        metadata=says(
            "Captured steps, those with long chunks of prompts left out: auto is on an "
            "accelerator whose kernels read caches in place. A CPU runs operation by "
            "operation: torch.compile would compile each shape for minutes."
        ),
    )
    swap_tokens: int = field(
        default=0,
        metadata=says("Host memory for preempted sequences, in tokens; 0 recomputes.", least=0),
    )
    block_tokens: int = field(default=64, metadata=says("Tokens in one cache block.", least=1))
    cache_tokens: int | None = field(
        default=None,
        metadata=says(
            "Tokens the paged cache holds; None is sized from demand and memory.", least=1
        ),
    )
    memory_fraction: float | None = field(
        default=None,
        metadata=says("Share of free memory for caches; None is 0.25 on a CPU, 0.9 else.", least=0),
    )
    memory_reserve_bytes: int | None = field(
        default=None,
        metadata=says(
            "Device memory that caches leave free at least; None is 1 GiB for steps and what "
            "captured graphs may hold, nothing on a CPU.",
            least=0,
        ),
    )
    max_model_len: int | None = field(
        default=None,
        metadata=says("Longest sequence, prompt and output; None is the model's.", least=2),
    )
    seed: int = field(
        default=0, metadata=says("Root of the seeds drawn for requests that bring none.", least=0)
    )
    num_threads: int | None = field(
        default=None,
        metadata=says(
            "CPU threads of all replicas together; None is one a replica for a narrow model "
            "(hidden size below 1,024), else torch's own number.",
            least=1,
            most=4096,
        ),
    )

    def __post_init__(self) -> None:
        for f in fields(self):
            object.__setattr__(self, f.name, checked(f, getattr(self, f.name)))

    @classmethod
    def from_mapping(cls, values: Mapping[str, ConfigValue]) -> EngineConfig:
        """Build from names and plain values; an unknown name is refused with the nearest one."""
        known = {f.name for f in fields(cls)}
        for name in values:
            if name not in known:
                raise checks.unknown_name(name, known, "a field of the engine configuration")
        if values.get("model") is None:
            raise ConfigError(
                "no model is given.",
                where="model",
                remedy="Give a checkpoint directory, or set DEEPINFER_HF_MODEL_DIR.",
            )
        return cls(**values)  # type: ignore[arg-type]

    def as_mapping(self) -> dict[str, ConfigValue]:
        """Plain values by field name; `from_mapping` reads them back."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {k: str(v) if isinstance(v, StrEnum) else v for k, v in values.items()}


def configure(
    values: Mapping[str, ConfigValue], environ: Mapping[str, str] | None = None
) -> EngineConfig:
    """Build from explicit values, then DEEPINFER_* variables, then defaults.

    An explicit value that is None leaves the field to the environment. `environ` None reads
    the process environment. ConfigError names the variable that brought a wrong value.
    """
    found = read_fields(environ)
    warn_of_ignored(found)
    explicit = {name: value for name, value in values.items() if value is not None}
    try:
        return EngineConfig.from_mapping({**values, **found.values, **explicit})
    except ConfigError as error:
        if error.where not in found.variables or error.where in explicit:
            raise
        variable = found.variables[error.where]
        raise ConfigError(error.what, where=variable, remedy=error.remedy) from error


@dataclass(frozen=True, kw_only=True)
class FieldDescription:
    """One field of EngineConfig for people: default None with `required` means there is none."""

    name: str
    type: str
    default: ConfigValue
    required: bool
    sentence: str
    choices: tuple[str, ...] = ()


def describe_fields() -> tuple[FieldDescription, ...]:
    """Every field of EngineConfig, in order: the axes that a sweep may vary."""
    return tuple(_describe(f) for f in fields(EngineConfig))


def _describe(f: Field) -> FieldDescription:  # type: ignore[type-arg]
    required = f.default is MISSING
    default = None if required else f.default
    kind = CHOICES.get(f.name)
    return FieldDescription(
        name=f.name,
        type="str" if kind else str(f.type),
        default=str(default) if isinstance(default, StrEnum) else default,
        required=required,
        sentence=f.metadata["sentence"],
        choices=tuple(str(c) for c in kind) if kind else (),
    )
