"""Models of random weights made on the device: any shape, no files, to measure with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.choices import CacheFormat, WeightFormat
from engine.models.deepseek_v41.config import DeepseekV41Config
from engine.models.deepseek_v41.dummy_weights import dummy_weights
from engine.models.deepseek_v41.facts import facts_of
from engine.models.registry import kernel_plan, torch_dtype

if TYPE_CHECKING:
    from engine.accelerator.interface import Accelerator
    from engine.config import EngineConfig
    from engine.models.deepseek_v41.model import DeepseekV41Model
    from engine.models.protocol import ModelFacts
    from engine.random_shapes import Shape
    from engine.resolution import ResolvedConfig
    from kernels.ops import Ops


@dataclass(frozen=True, kw_only=True)
class V41DummySource:
    """A `ModelSource` of one shape. Matrices stay packed, as the release has them.

    Products round their inputs as the release does where `weights` is `released`. Every token id
    is its own Engram key, as far as the smaller vocabulary goes.
    """

    shape: Shape
    seed: int = 0
    change: Callable[[Ops], Ops] | None = None  # of the kernels that serve it: to look at calls

    @property
    def config(self) -> DeepseekV41Config:
        """That of the shape."""
        return DeepseekV41Config.from_document(self.shape.document, where="random shape")

    def facts(self, _config: EngineConfig) -> ModelFacts:
        """Those of the shape."""
        return facts_of(self.config)

    def load(self, resolved: ResolvedConfig, accelerator: Accelerator) -> DeepseekV41Model:
        """Draw the weights on the device."""
        from engine.models.deepseek_v41.model import DeepseekV41Model

        config, dtype = self.config, torch_dtype(resolved.dtype)
        weights = dummy_weights(
            config,
            dtype=dtype,
            device=accelerator.device,
            seed=self.seed,
            rounds_inputs=resolved.weights is WeightFormat.RELEASED,
        )
        ops = kernel_plan(config, resolved, accelerator.target()).ops
        return DeepseekV41Model(
            config,
            weights,
            dtype=dtype,
            released_caches=resolved.cache_format is CacheFormat.RELEASED,
            engram_token_map=[
                i % config.engram_compressed_vocab_size for i in range(config.vocab_size)
            ],
            ops=ops if self.change is None else self.change(ops),
        )
