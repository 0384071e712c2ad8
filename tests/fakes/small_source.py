"""Small random V4.1 models as a model source, for the engine's own tests."""

from dataclasses import dataclass

from engine.choices import CacheFormat
from engine.models.deepseek_v41.facts import facts_of
from engine.models.registry import torch_dtype
from kernels.ops import REFERENCE, Ops
from tests.fakes.models import small_config, small_model


@dataclass(frozen=True)
class SmallSource:
    """`engine.models.registry.ModelSource` of one small model; a value, so it pickles."""

    seed: int = 0
    window: int = 5
    encoder: tuple[int, ...] = (2,)
    decoder: tuple[int, ...] = (2, 1)
    topk: int = 4
    engram: tuple[int, ...] = (1,)
    ops: Ops = REFERENCE

    def facts(self, config):
        return facts_of(self._config())

    def load(self, resolved, accelerator):
        return small_model(
            self._config(),
            seed=self.seed,
            dtype=torch_dtype(resolved.dtype),
            released_caches=resolved.cache_format is CacheFormat.RELEASED,
            ops=self.ops,
        )

    def _config(self):
        return small_config(
            window=self.window,
            encoder=self.encoder,
            decoder=self.decoder,
            topk=self.topk,
            engram=self.engram,
        )
