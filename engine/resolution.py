"""What a configuration comes to for one model on one kind of device."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.choices import (
    AcceleratorKind,
    CacheFormat,
    GraphMode,
    KernelChoice,
    Precision,
    ReplayMode,
    WeightFormat,
)
from engine.errors import ConfigError
from kernels.target import triton_is_installed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.config import EngineConfig
    from engine.config_rules import ModelLimits

_DEFAULT_KEEP_BEYOND_WINDOW = 12  # 140 rows at the window of 128 of V4.1


@dataclass(frozen=True, kw_only=True)
class ResolvedConfig:
    """An EngineConfig for one model on one kind of device: nothing is left to choose."""

    config: EngineConfig
    dtype: Precision
    cache_format: CacheFormat
    weights: WeightFormat
    accelerator: AcceleratorKind
    kernels: KernelChoice
    """What may serve: TRITON, though single operations may lack it; REFERENCE; or AUTO for
    bfloat16 on a CPU, where the plan finds what its library can."""
    draft_length: int
    replay_mode: ReplayMode  # OFF for a model without a decoder half
    replay_keep_tokens: int
    ring_slack: int
    """Rows that window rings hold beyond the window: what a roll back may uncover."""
    max_model_len: int
    memory_fraction: float
    prefill_chunk_tokens: int
    overlap: bool
    graphs: bool  # if the model keeps the graph rule
    reasons: Mapping[str, str] = field(compare=False)  # why a field is what it is, where asked


def resolve(
    config: EngineConfig,
    facts: ModelLimits,
    accelerator: AcceleratorKind = AcceleratorKind.CPU,
    *,
    runs_ahead: bool | None = None,
    can_record: bool | None = None,
) -> ResolvedConfig:
    """Hold a configuration against a model. `accelerator` is what `auto` finds on this host.

    `runs_ahead` and `can_record` say what that device can; None: all but a CPU can.

    ConfigError: drafts longer than the model's block; keep tokens below
    `window + max(max_backtrack_tokens, draft_length + 1)` (DeepInfer's rule: rows that a
    rejected draft uncovers must have been replayed); a context longer than the model's; a chunk
    of a prompt that no step has room for; Triton kernels on a CPU.
    """
    kind = accelerator if config.accelerator is AcceleratorKind.AUTO else config.accelerator
    on_cpu = kind is AcceleratorKind.CPU
    draft_length = _draft_length(config, facts)
    slack = max(config.max_backtrack_tokens, draft_length + 1)
    dtype = config.dtype
    if dtype is Precision.AUTO:
        dtype = Precision.FLOAT32 if on_cpu else Precision.BFLOAT16
    kernels = _kernels(config, dtype, on_cpu=on_cpu)
    overlap, why_overlap = _overlap(config, on_cpu if runs_ahead is None else not runs_ahead)
    graphs, why_graphs = _graphs(config, on_cpu if can_record is None else not can_record)
    return ResolvedConfig(
        config=config,
        dtype=dtype,
        cache_format=_cache_format(config, facts, on_cpu=on_cpu),
        weights=_weights(config, dtype, kernels),
        accelerator=kind,
        kernels=kernels,
        draft_length=draft_length,
        replay_mode=config.replay_mode if facts.can_truncate else ReplayMode.OFF,
        replay_keep_tokens=_keep_tokens(config, facts.window, slack),
        ring_slack=slack,
        max_model_len=_context(config, facts),
        memory_fraction=config.memory_fraction or (0.25 if on_cpu else 0.9),
        prefill_chunk_tokens=_chunk_tokens(config),
        overlap=overlap,
        graphs=graphs,
        reasons={"overlap": why_overlap, "graphs": why_graphs},
    )


def _cache_format(config: EngineConfig, facts: ModelLimits, *, on_cpu: bool) -> CacheFormat:
    """Plain where the release has plain rows: one thing has one name, so that runs compare."""
    if not facts.packs_rows:
        return CacheFormat.PLAIN
    if config.cache_format is CacheFormat.AUTO:
        return CacheFormat.PLAIN if on_cpu else CacheFormat.RELEASED
    return config.cache_format


def _weights(config: EngineConfig, dtype: Precision, kernels: KernelChoice) -> WeightFormat:
    """As released where there are kernels that read them so, which only bfloat16 has."""
    if config.weights is not WeightFormat.AUTO:
        return config.weights
    can = kernels is KernelChoice.TRITON and dtype is Precision.BFLOAT16
    return WeightFormat.RELEASED if can else WeightFormat.DEQUANTISED


def _overlap(config: EngineConfig, is_in_line: bool) -> tuple[bool, str]:
    if not config.overlap:
        return False, "asked for"
    if is_in_line:
        return False, "the device does nothing while the host does something else"
    return True, "the device works while the host plans and settles"


def _graphs(config: EngineConfig, cannot: bool) -> tuple[bool, str]:
    if config.graphs is GraphMode.OFF:
        return False, "asked for"
    if cannot:
        return False, "the device cannot record its work"
    return True, "short steps are recorded if the kernels of the model read caches in place"


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


def _kernels(config: EngineConfig, dtype: Precision, *, on_cpu: bool) -> KernelChoice:
    if config.kernels is KernelChoice.TRITON and on_cpu:
        raise ConfigError(
            "Triton kernels do not run on a CPU.", where="kernels", remedy="Use auto or reference."
        )
    if config.kernels is not KernelChoice.AUTO:
        return config.kernels
    if on_cpu and dtype is Precision.BFLOAT16:
        return KernelChoice.AUTO
    can = not on_cpu and dtype is not Precision.FLOAT64 and triton_is_installed()
    return KernelChoice.TRITON if can else KernelChoice.REFERENCE


def _draft_length(config: EngineConfig, facts: ModelLimits) -> int:
    if config.draft_length is None:
        return facts.draft_block
    if config.draft_length > facts.draft_block:
        raise ConfigError(
            f"{config.draft_length} is longer than the model's draft block.",
            where="draft_length",
            remedy=f"Use 0 to {facts.draft_block}."
            if facts.draft_block
            else "It has none: use 0, or leave this out.",
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
