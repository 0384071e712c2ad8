"""From a configuration to a model: the one place that knows which architectures there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

from engine.checkpoint_directory import resolve_model_dir
from engine.choices import CacheFormat, Precision, WeightFormat
from engine.models.deepseek_v41.config import DeepseekV41Config
from engine.models.deepseek_v41.facts import facts_of
from engine.models.deepseek_v41.weights import load_packed_weights, load_weights
from engine.tokenizer import engram_token_map
from kernels.plan import ModelShape, Plan, resolve

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from engine.accelerator.interface import Accelerator
    from engine.config import EngineConfig
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
    """Models from checkpoint directories in the released form."""

    def facts(self, config: EngineConfig) -> ModelFacts:
        """Read `config.json` of the checkpoint that `config.model` names."""
        return facts_of(DeepseekV41Config.load(resolve_model_dir(config.model)))

    def load(self, resolved: ResolvedConfig, accelerator: Accelerator) -> Model:
        """Read and place the weights, dequantised or packed."""
        # Here, since the model's kernels need not be imported to read facts.
        from engine.models.deepseek_v41.model import DeepseekV41Model

        model_dir = resolve_model_dir(resolved.config.model)
        config = DeepseekV41Config.load(model_dir)
        dtype = torch_dtype(resolved.dtype)
        return DeepseekV41Model(
            config,
            _weights(model_dir, config, resolved, accelerator.device),
            dtype=dtype,
            released_caches=resolved.cache_format is CacheFormat.RELEASED,
            engram_token_map=engram_token_map(model_dir, config) if config.engram_layer_ids else [],
            ops=kernel_plan(config, resolved, accelerator.target()).ops,
        )


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


def torch_dtype(precision: Precision) -> torch.dtype:
    """The torch type of a resolved precision."""
    return _DTYPES[precision]
