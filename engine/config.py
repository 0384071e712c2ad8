"""EngineConfig: what a user may choose, checked once, and what it comes to for one model.

mapping (flags, YAML, DEEPINFER_*)  ->  EngineConfig        checks that need no model
EngineConfig + facts of the model   ->  ResolvedConfig      no `auto` and no None left
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING

from engine import checks
from engine.choices import AcceleratorKind, AdmissionMode, CacheFormat, Precision, ReplayMode
from engine.config_rules import CHOICES, checked, says
from engine.environment import read_fields, warn_of_ignored
from engine.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from dataclasses import Field

    from engine.config_rules import ModelLimits

ConfigValue = str | int | float | None


_DEFAULT_KEEP_BEYOND_WINDOW = 12  # 140 rows at the window of 128 of V4.1


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
        metadata=says("Cache rows: auto is plain on a CPU, released on an accelerator."),
    )
    accelerator: AcceleratorKind = field(
        default=AcceleratorKind.AUTO,
        metadata=says("Device kind: auto is cuda where there is one, else cpu."),
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
        metadata=says("Plan and settle on the host while the device runs; false is in line."),
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


@dataclass(frozen=True, kw_only=True)
class ResolvedConfig:
    """An EngineConfig for one model on one kind of device: nothing is left to choose."""

    config: EngineConfig
    dtype: Precision
    cache_format: CacheFormat
    accelerator: AcceleratorKind
    draft_length: int
    replay_mode: ReplayMode  # OFF for a model without a decoder half
    replay_keep_tokens: int
    ring_slack: int
    """Rows that window rings hold beyond the window: what a roll back may uncover."""
    max_model_len: int
    memory_fraction: float
    prefill_chunk_tokens: int


def resolve(
    config: EngineConfig,
    facts: ModelLimits,
    accelerator: AcceleratorKind = AcceleratorKind.CPU,
) -> ResolvedConfig:
    """Hold a configuration against a model. `accelerator` is what `auto` finds on this host.

    ConfigError: drafts longer than the model's block; keep tokens below
    `window + max(max_backtrack_tokens, draft_length + 1)` (DeepInfer's rule: rows that a
    rejected draft uncovers must have been replayed); a context longer than the model's; a chunk
    of a prompt that no step has room for.
    """
    kind = accelerator if config.accelerator is AcceleratorKind.AUTO else config.accelerator
    on_cpu = kind is AcceleratorKind.CPU
    draft_length = _draft_length(config, facts)
    slack = max(config.max_backtrack_tokens, draft_length + 1)
    dtype, cache_format = config.dtype, config.cache_format
    if dtype is Precision.AUTO:
        dtype = Precision.FLOAT32 if on_cpu else Precision.BFLOAT16
    if cache_format is CacheFormat.AUTO:
        cache_format = CacheFormat.PLAIN if on_cpu else CacheFormat.RELEASED
    return ResolvedConfig(
        config=config,
        dtype=dtype,
        cache_format=cache_format,
        accelerator=kind,
        draft_length=draft_length,
        replay_mode=config.replay_mode if facts.can_truncate else ReplayMode.OFF,
        replay_keep_tokens=_keep_tokens(config, facts.window, slack),
        ring_slack=slack,
        max_model_len=_context(config, facts),
        memory_fraction=config.memory_fraction or (0.25 if on_cpu else 0.9),
        prefill_chunk_tokens=_chunk_tokens(config),
    )


def _chunk_tokens(config: EngineConfig) -> int:
    """At least half a step; all that is left when every sequence takes one row."""
    most = config.max_num_batched_tokens
    if config.prefill_chunk_tokens is None:
        return max(1, most - config.max_num_seqs, most // 2)
    if config.prefill_chunk_tokens > most:
        raise ConfigError(
            f"{config.prefill_chunk_tokens} is more than a step runs.",
            where="prefill_chunk_tokens",
            remedy=f"Use at most max_num_batched_tokens ({most}).",
        )
    return config.prefill_chunk_tokens


def _draft_length(config: EngineConfig, facts: ModelLimits) -> int:
    if config.draft_length is None:
        return facts.draft_block
    if config.draft_length > facts.draft_block:
        raise ConfigError(
            f"{config.draft_length} is longer than the model's draft block.",
            where="draft_length",
            remedy=f"Use 0 to {facts.draft_block}.",
        )
    return config.draft_length


def _keep_tokens(config: EngineConfig, window: int, slack: int) -> int:
    least = window + slack
    if config.replay_keep_tokens is None:
        return max(window + _DEFAULT_KEEP_BEYOND_WINDOW, least)
    if config.replay_mode is not ReplayMode.OFF and config.replay_keep_tokens < least:
        raise ConfigError(
            f"{config.replay_keep_tokens} is too few: the window of {window} and {slack} rows "
            "that drafts or backtracking may uncover must be kept.",
            where="replay_keep_tokens",
            remedy=f"Use at least {least}.",
        )
    return config.replay_keep_tokens


def _context(config: EngineConfig, facts: ModelLimits) -> int:
    if config.max_model_len is None:
        return facts.max_positions
    if config.max_model_len > facts.max_positions:
        raise ConfigError(
            f"{config.max_model_len} is longer than the model's context.",
            where="max_model_len",
            remedy=f"Use at most {facts.max_positions}.",
        )
    return config.max_model_len
