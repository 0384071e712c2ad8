"""`config.json` of a Llama, Qwen3 or Qwen3-MoE checkpoint, as Hugging Face writes it."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from engine.errors import CheckpointError
from engine.models.protocol import ModelFacts

_Count = Annotated[int, Field(ge=1, strict=True)]
_TokenId = Annotated[int, Field(ge=0, strict=True)]
_ORIGINAL = "original_max_position_embeddings"
_NEEDED = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", _ORIGINAL),
    "yarn": ("factor", _ORIGINAL),
}
_NEEDED_BY_EXPERTS = ("num_experts", "num_experts_per_tok", "moe_intermediate_size")
_QWEN3_HEAD_DIM = 128  # what its release leaves out of the file


class Architecture(StrEnum):
    """The class that a checkpoint names in `architectures`."""

    LLAMA = "LlamaForCausalLM"
    QWEN3 = "Qwen3ForCausalLM"
    QWEN3_MOE = "Qwen3MoeForCausalLM"


class RopeScaling(BaseModel):
    """How the frequencies of the rotation were bent for a longer context."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rope_theta: Annotated[float, Field(gt=0)] = 10000.0
    rope_type: Literal["default", "linear", "llama3", "yarn"] = "default"
    factor: Annotated[float, Field(gt=0)] | None = None  # all but default
    low_freq_factor: float = 1.0  # llama3
    high_freq_factor: float = 4.0
    original_max_position_embeddings: _Count | None = None  # llama3, yarn
    beta_fast: float = 32.0  # yarn
    beta_slow: float = 1.0
    attention_factor: float | None = None
    partial_rotary_factor: Literal[1.0] = 1.0
    truncate: Literal[True] = True

    @model_validator(mode="after")
    def _is_whole(self) -> RopeScaling:
        needed = _NEEDED[self.rope_type]
        if missing := [name for name in needed if getattr(self, name) is None]:
            raise ValueError(f"rope of type {self.rope_type} needs {', '.join(missing)}")
        return self

    @property
    def score_factor(self) -> float:
        """By what YaRN scales queries and keys together (arXiv:2309.00071, section 3.4)."""
        if self.rope_type != "yarn":
            return 1.0
        found = self.attention_factor
        if found is None:
            found = 0.1 * math.log(max(self.factor or 1.0, 1.0)) + 1.0
        return found * found


class CausalConfig(BaseModel):
    """What the model is built from; names are those of the file."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    architecture: Architecture
    vocab_size: _Count
    hidden_size: _Count
    intermediate_size: _Count
    num_hidden_layers: _Count
    num_attention_heads: _Count
    num_key_value_heads: _Count
    head_dim: Annotated[int, Field(ge=2, multiple_of=2, strict=True)]
    max_position_embeddings: _Count
    rms_norm_eps: Annotated[float, Field(ge=0)] = 1e-6
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: Literal[False] = False
    hidden_act: Literal["silu"] = "silu"
    use_sliding_window: Literal[False] = False
    layer_types: tuple[Literal["full_attention"], ...] | None = None
    quantization_config: None = None
    eos_token_ids: Annotated[tuple[_TokenId, ...], Field(min_length=1)]  # of `eos_token_id`
    bos_token_id: _TokenId | None = None
    rope: RopeScaling
    num_experts: _Count | None = None
    num_experts_per_tok: _Count | None = None
    moe_intermediate_size: _Count | None = None
    norm_topk_prob: bool = False
    decoder_sparse_step: _Count = 1
    mlp_only_layers: tuple[int, ...] = ()

    @property
    def has_head_norms(self) -> bool:
        """Whether queries and keys pass a norm before they are rotated."""
        return self.architecture is not Architecture.LLAMA

    def has_experts(self, layer: int) -> bool:
        """Whether a layer chooses among experts."""
        if self.architecture is not Architecture.QWEN3_MOE or layer in self.mlp_only_layers:
            return False
        return (layer + 1) % self.decoder_sparse_step == 0

    @property
    def facts(self) -> ModelFacts:
        """There is no drafter, no window and no half to truncate."""
        return ModelFacts(
            vocab_size=self.vocab_size,
            max_positions=self.max_position_embeddings,
            eos_token_id=self.eos_token_ids[0],
            window=1,
            draft_block=0,
            ngram=1,
            can_truncate=False,
            hidden_size=self.hidden_size,
            packs_rows=False,
            other_eos_token_ids=self.eos_token_ids[1:],
        )

    @model_validator(mode="after")
    def _fits(self) -> CausalConfig:
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(f"num_key_value_heads must divide {self.num_attention_heads}")
        if max(self.eos_token_ids) >= self.vocab_size:
            raise ValueError(f"eos_token_id is not below vocab_size, {self.vocab_size}")
        needed = _NEEDED_BY_EXPERTS if self.architecture is Architecture.QWEN3_MOE else ()
        if missing := [name for name in needed if getattr(self, name) is None]:
            raise ValueError(f"a mixture of experts needs {', '.join(missing)}")
        if (self.num_experts_per_tok or 0) > (self.num_experts or 0):
            raise ValueError("num_experts_per_tok is more than num_experts")
        return self

    @classmethod
    def from_document(cls, document: dict[str, Any], *, where: str) -> CausalConfig:
        """Check a document. CheckpointError names what is missing or not served."""
        try:
            return cls.model_validate(_named(document))
        except ValidationError as error:
            raise CheckpointError(
                "; ".join(_sentence(one) for one in error.errors()[:5]),
                where=where,
                remedy="Use a checkpoint without it, or fetch this one again.",
            ) from error


def architecture_of(document: dict[str, Any]) -> Architecture | None:
    """The architecture that a document names, if it is one of these."""
    named = document.get("architectures")
    first = named[0] if isinstance(named, list) and named else None
    known = {str(one): one for one in Architecture}
    return known.get(first) if isinstance(first, str) else None


def _named(document: dict[str, Any]) -> dict[str, Any]:
    """The document under our names, with what Hugging Face takes for a field left out."""
    values = dict(document)
    values["architecture"] = architecture_of(document)
    heads, hidden = document.get("num_attention_heads"), document.get("hidden_size")
    if values.get("num_key_value_heads") is None:
        values["num_key_value_heads"] = heads
    if values.get("head_dim") is None:
        is_llama = values["architecture"] is Architecture.LLAMA
        can = isinstance(heads, int) and isinstance(hidden, int) and heads > 0
        values["head_dim"] = (hidden // heads if can else None) if is_llama else _QWEN3_HEAD_DIM
    if values.get("num_experts") is None:
        values["num_experts"] = document.get("num_local_experts")
    if values.get("mlp_only_layers") is None:
        values["mlp_only_layers"] = ()
    eos = document.get("eos_token_id")
    values["eos_token_ids"] = eos if isinstance(eos, list) else [eos]
    values["rope"] = _rope(document)
    return values


def _rope(document: dict[str, Any]) -> object:
    """`rope_parameters` of today, or `rope_scaling` and `rope_theta` of before."""
    found = document.get("rope_parameters") or document.get("rope_scaling") or {}
    if not isinstance(found, dict):
        return found
    values = {("rope_type" if k == "type" else k): v for k, v in found.items() if v is not None}
    theta = document.get("rope_theta")
    return values if theta is None else {"rope_theta": theta} | values


def _sentence(error: Any) -> str:  # noqa: ANN401  a dictionary of pydantic's
    name = ".".join(str(part) for part in error["loc"]).removesuffix(".constrained-int")
    told = error["msg"].removeprefix("Value error, ")
    return f"{name} is {error['input']!r:.60}: {told}" if name else told
