"""Small random Llama and Qwen3 models as a model source, for the engine's own tests."""

from dataclasses import dataclass, field

import torch

from engine.models.causal_lm.model import CausalModel
from engine.models.causal_lm.weights import expected_shapes
from engine.models.dummy_causal import DummyWeights
from engine.models.registry import torch_dtype
from kernels.ops import Ops
from tests.fakes.causal import DOCUMENTS, causal_config
from tests.fakes.in_place_ops import IN_PLACE


@dataclass(frozen=True)
class SmallCausalSource:
    """`engine.models.registry.ModelSource` of one of `tests.fakes.causal.DOCUMENTS`."""

    name: str
    ops: Ops = field(default=IN_PLACE)
    seed: int = 0

    def facts(self, config):
        return self._config().facts

    def load(self, resolved, accelerator):
        config, dtype = self._config(), torch_dtype(resolved.dtype)
        draw = torch.Generator().manual_seed(self.seed)
        weights = DummyWeights(expected_shapes(config), dtype, draw)
        return CausalModel(config, weights, dtype=dtype, ops=self.ops)

    def _config(self):
        return causal_config(DOCUMENTS[self.name])
