"""Models of a released shape with random weights made on the device, to measure with."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from engine.models.causal_lm.config import CausalConfig
from engine.models.causal_lm.model import CausalModel
from engine.models.causal_lm.weights import expected_shapes
from engine.models.registry import causal_plan, torch_dtype
from kernels.precision import at_least_float32

if TYPE_CHECKING:
    from torch import Tensor

    from engine.accelerator.interface import Accelerator
    from engine.config import EngineConfig
    from engine.models.protocol import Model, ModelFacts
    from engine.resolution import ResolvedConfig

_ROPE = {"rope_type": "default", "rope_theta": 1e6}
SHAPES: dict[str, dict[str, object]] = {
    "qwen3-0.6b": {
        "architectures": ["Qwen3ForCausalLM"],
        "vocab_size": 151_936,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 40_960,
        "tie_word_embeddings": True,
        "eos_token_id": 151_645,
        "rope_parameters": _ROPE,
    },
    "smollm2-135m": {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 49_152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
        "eos_token_id": 2,
        "rope_parameters": _ROPE,
    },
}
"""Released configurations, as far as they decide the shape."""


@dataclass(frozen=True)
class DummyWeights:
    """Stands for stored tensors: normal values of a variance that keeps activations near 1."""

    shapes: dict[str, tuple[int, ...]]
    dtype: torch.dtype
    generator: torch.Generator

    def read(self, name: str) -> Tensor:
        """In the dtype of the model."""
        shape = self.shapes[name]
        device = self.generator.device
        drawn = torch.randn(shape, generator=self.generator, dtype=self.dtype, device=device)
        return drawn if len(shape) == 1 else drawn.div_(math.sqrt(shape[-1]))

    def read_wide(self, name: str) -> Tensor:
        """In at least float32; gains are positive."""
        dtype = at_least_float32(self.dtype)
        return replace(self, dtype=dtype).read(name).abs()


@dataclass(frozen=True)
class CausalDummySource:
    """A `ModelSource` of one configuration."""

    config: CausalConfig
    seed: int = 0

    @classmethod
    def named(cls, shape: str) -> CausalDummySource:
        """Of one of `SHAPES`."""
        return cls(CausalConfig.from_document(SHAPES[shape], where=shape))

    def facts(self, _config: EngineConfig) -> ModelFacts:
        """Of the configuration, whatever checkpoint the engine is told to load."""
        return self.config.facts

    def load(self, resolved: ResolvedConfig, accelerator: Accelerator) -> Model:
        """Make the weights on the device."""
        dtype = torch_dtype(resolved.dtype)
        generator = torch.Generator(accelerator.device).manual_seed(self.seed)
        weights = DummyWeights(expected_shapes(self.config), dtype, generator)
        plan = causal_plan(self.config, resolved, accelerator.target())
        return CausalModel(self.config, weights, dtype=dtype, ops=plan.ops)
