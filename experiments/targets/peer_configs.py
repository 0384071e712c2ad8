"""How engines that are Python packages are configured: the fields of `engine` for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, ValidationError

from experiments.border import Border, explain
from experiments.errors import PlanError
from experiments.records import AxisValue


class PeerConfig(Border):
    """What all of them have. `python` names an interpreter: a path, or an installed peer.

    With it the engine runs in that interpreter, in a process of its own; without it in the one
    that runs the experiment.
    """

    model: str = Field(min_length=1)
    python: str | None = None
    accelerator: Literal["cpu", "cuda"] = "cpu"
    max_num_seqs: int = Field(default=256, ge=1)
    max_model_len: int | None = Field(default=None, ge=2)  # None: the model's
    num_threads: int | None = Field(default=None, ge=1)  # None: the package's own choice
    start_s: float = Field(default=900.0, gt=0)

    @classmethod
    def from_mapping(cls, fields: Mapping[str, AxisValue]) -> Self:
        """PlanError for a field that there is not, or a value out of range."""
        try:
            return cls.model_validate(dict(fields))
        except ValidationError as error:
            raise explain(error, cls, where="engine") from error

    def as_mapping(self) -> dict[str, AxisValue]:
        """All fields, defaults filled in."""
        return self.model_dump(mode="json")

    def environment(self) -> dict[str, str]:
        """Variables of the process that it runs in."""
        return {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "TOKENIZERS_PARALLELISM": "false"}

    @property
    def own_process(self) -> bool:
        """Whether it runs outside this process."""
        return self.python is not None


class TransformersConfig(PeerConfig):
    """`static`: `generate` on batches, each begun when the one before has ended.
    `continuous`: the manager of continuous batching."""

    batching: Literal["static", "continuous"] = "static"
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    attention: Literal["sdpa", "eager"] = "sdpa"


class VllmConfig(PeerConfig):
    """vLLM's engine, stepped without a server; prefixes are not cached."""

    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    load_format: Literal["auto", "dummy"] = "auto"  # dummy: random weights of the shape
    enforce_eager: bool = False
    max_num_batched_tokens: int | None = Field(default=None, ge=1)  # None: vLLM's choice
    device_memory_share: float = Field(default=0.6, gt=0, le=1)
    cpu_cache_gib: int = Field(default=1, ge=1)
    flashinfer_sampler: bool = False

    def environment(self) -> dict[str, str]:
        """One process, no reports home, a bounded cache on a processor."""
        return {
            **super().environment(),
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_USE_FLASHINFER_SAMPLER": str(int(self.flashinfer_sampler)),
            "VLLM_CPU_KVCACHE_SPACE": str(self.cpu_cache_gib),
        }

    @property
    def own_process(self) -> bool:
        """Always: its settings are variables that are read when it is imported."""
        return True


CONFIGS: dict[str, type[PeerConfig]] = {"transformers": TransformersConfig, "vllm": VllmConfig}


def config_of(kind: str, fields: Mapping[str, AxisValue]) -> PeerConfig:
    """The configuration of an engine of that kind; PlanError names what is wrong with it."""
    if not fields.get("model"):
        raise PlanError("is missing", where="engine: model", remedy="Give the model folder.")
    return CONFIGS[kind].from_mapping(fields)
