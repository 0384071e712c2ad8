"""From a configuration to a model: the one place that knows which architectures there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

from engine.checkpoint_directory import resolve_model_dir
from engine.choices import CacheFormat, Precision, WeightFormat
from engine.models.causal_lm import weights as causal_weights
from engine.models.causal_lm.config import CausalConfig
from engine.models.configuration import load_config
from engine.models.deepseek_v41.facts import facts_of
from engine.models.deepseek_v41.weights import (
    check_headers,
    load_packed_weights,
    load_weights,
)
from engine.tokenizer import engram_token_map
from kernels.plan import Plan, resolve
from kernels.registry import ModelShape

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from engine.accelerator.interface import Accelerator
    from engine.config import EngineConfig
    from engine.models.deepseek_v41.config import DeepseekV41Config
    from engine.models.protocol import Model, ModelFacts
    from engine.resolution import ResolvedConfig
    from kernels.matmul.weights import Weight
    from kernels.target import Target

_DTYPES = {
    Precision.FLOAT32: torch.float32,
    Precision.FLOAT64: torch.float64,
    Precision.BFLOAT16: torch.bfloat16,
}


class ModelSource(Protocol):
    """Where models come from. Crosses to replica processes by pickle."""

    def facts(self, config: EngineConfig) -> ModelFacts:
        """Facts without weights, to hold a configuration against before anything is loaded."""
        ...

    def load(self, resolved: ResolvedConfig, accelerator: Accelerator) -> Model:
        """Weights on the device. CheckpointError where the checkpoint is not whole."""
        ...


class CheckpointSource:
    """Models from checkpoint directories, of any architecture that there is."""

    def facts(self, config: EngineConfig) -> ModelFacts:
        """Read `config.json` of the checkpoint that `config.model` names."""
        return open_checkpoint(resolve_model_dir(config.model)).facts

    def load(self, resolved: ResolvedConfig, accelerator: Accelerator) -> Model:
        """Read the weights, in the form in which the device's kernels take them, and place them."""
        return open_checkpoint(resolve_model_dir(resolved.config.model)).load(resolved, accelerator)


class Checkpoint(Protocol):
    """A checkpoint directory whose configuration has been read. CheckpointError as each says."""

    @property
    def facts(self) -> ModelFacts:
        """What scheduling needs to know."""
        ...

    @property
    def reserved_token_ids(self) -> tuple[int, ...]:
        """Tokens that no random prompt may hold, ascending."""
        ...

    def check_headers(self) -> None:
        """Hold every stored tensor against the configuration, without reading any data."""
        ...

    def kernel_plan(self, resolved: ResolvedConfig, target: Target) -> Plan:
        """Which kernels would serve it. KernelError where those asked for cannot run."""
        ...

    def load(self, resolved: ResolvedConfig, accelerator: Accelerator) -> Model:
        """The model on the device."""
        ...


def open_checkpoint(model_dir: Path) -> Checkpoint:
    """Read the configuration of a directory. CheckpointError where no architecture fits it."""
    config = load_config(model_dir)
    if isinstance(config, CausalConfig):
        return _CausalCheckpoint(model_dir, config)
    return _V41Checkpoint(model_dir, config)


@dataclass(frozen=True)
class _V41Checkpoint:
    """DeepSeek-V4.1 in the released form."""

    model_dir: Path
    config: DeepseekV41Config

    @property
    def facts(self) -> ModelFacts:
        return facts_of(self.config)

    @property
    def reserved_token_ids(self) -> tuple[int, ...]:
        config = self.config
        return _present(config.eos_token_id, config.bos_token_id, config.dspark_noise_token_id)

    def check_headers(self) -> None:
        check_headers(self.model_dir, self.config)

    def kernel_plan(self, resolved: ResolvedConfig, target: Target) -> Plan:
        return kernel_plan(self.config, resolved, target)

    def load(self, resolved: ResolvedConfig, accelerator: Accelerator) -> Model:
        # Here, since the model's kernels need not be imported to read facts.
        from engine.models.deepseek_v41.model import DeepseekV41Model

        model_dir, config = self.model_dir, self.config
        dtype = torch_dtype(resolved.dtype)
        return DeepseekV41Model(
            config,
            _weights(model_dir, config, resolved, accelerator.device),
            dtype=dtype,
            released_caches=resolved.cache_format is CacheFormat.RELEASED,
            engram_token_map=engram_token_map(model_dir, config) if config.engram_layer_ids else [],
            ops=self.kernel_plan(resolved, accelerator.target()).ops,
        )


@dataclass(frozen=True)
class _CausalCheckpoint:
    """Llama, Qwen3 and Qwen3-MoE as Hugging Face stores them."""

    model_dir: Path
    config: CausalConfig

    @property
    def facts(self) -> ModelFacts:
        return self.config.facts

    @property
    def reserved_token_ids(self) -> tuple[int, ...]:
        return _present(*self.config.eos_token_ids, self.config.bos_token_id)

    def check_headers(self) -> None:
        causal_weights.check_headers(self.model_dir, self.config)

    def kernel_plan(self, resolved: ResolvedConfig, target: Target) -> Plan:
        return causal_plan(self.config, resolved, target)

    def load(self, resolved: ResolvedConfig, accelerator: Accelerator) -> Model:
        from engine.models.causal_lm.model import CausalModel

        config, dtype = self.config, torch_dtype(resolved.dtype)
        plan = self.kernel_plan(resolved, accelerator.target())
        with causal_weights.open_weights(
            self.model_dir, config, dtype=dtype, device=accelerator.device
        ) as weights:
            return CausalModel(config, weights, dtype=dtype, ops=plan.ops)


def _weights(
    model_dir: Path, config: DeepseekV41Config, resolved: ResolvedConfig, device: str
) -> Mapping[str, Weight]:
    dtype = torch_dtype(resolved.dtype)
    if resolved.weights is WeightFormat.DEQUANTISED:
        return load_weights(model_dir, config, dtype=dtype, device=device)
    rounds_inputs = resolved.weights is WeightFormat.RELEASED
    return load_packed_weights(
        model_dir, config, dtype=dtype, device=device, rounds_inputs=rounds_inputs
    )


def kernel_plan(config: DeepseekV41Config, resolved: ResolvedConfig, target: Target) -> Plan:
    """Which kernels serve a model. KernelError where those asked for cannot run."""
    shape = ModelShape(
        dtype=resolved.dtype,
        width=config.hidden_size,
        head_dim=config.head_dim,
        streams=config.hc_mult,
        experts=config.n_routed_experts,
        index_dim=config.index_head_dim,
    )
    return resolve(target, shape, resolved.kernels)


def causal_plan(config: CausalConfig, resolved: ResolvedConfig, target: Target) -> Plan:
    """As `kernel_plan`."""
    shape = ModelShape(
        dtype=resolved.dtype,
        width=config.hidden_size,
        head_dim=config.head_dim,
        streams=1,
        experts=config.num_experts or 0,
    )
    return resolve(target, shape, resolved.kernels)


def torch_dtype(precision: Precision) -> torch.dtype:
    """The torch type of a resolved precision."""
    return _DTYPES[precision]


def _present(*ids: int | None) -> tuple[int, ...]:
    return tuple(sorted({i for i in ids if i is not None}))
