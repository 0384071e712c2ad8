"""Tensors of a Hugging Face checkpoint, held against its configuration and read layer by layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from engine.errors import CheckpointError
from engine.models.shards import StoredTensor, read_shards
from kernels.precision import at_least_float32

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from torch import Tensor

    from engine.models.causal_lm.config import CausalConfig

_PLAIN = ("BF16", "F16", "F32", "F64")
_NAMED_AT_MOST = 10
_IGNORED = ("rotary_emb.inv_freq",)  # follow from the configuration

Shape = tuple[int, ...]


class Weights(Protocol):
    """Tensors by their stored names. Each read is a fresh copy on the device of the model."""

    def read(self, name: str) -> Tensor:
        """In the dtype of the model."""
        ...

    def read_wide(self, name: str) -> Tensor:
        """In at least float32: norms and routers."""
        ...


class StoredWeights:
    """`Weights` of open files."""

    def __init__(
        self, tensors: Mapping[str, StoredTensor], dtype: torch.dtype, device: torch.device | str
    ) -> None:
        self._tensors, self._dtype, self._device = tensors, dtype, device

    def read(self, name: str) -> Tensor:
        """See the protocol."""
        return self._tensors[name].read().to(self._device, self._dtype, copy=True)

    def read_wide(self, name: str) -> Tensor:
        """See the protocol."""
        wide = at_least_float32(self._dtype)
        return self._tensors[name].read().to(self._device, wide, copy=True)


@contextmanager
def open_weights(
    model_dir: Path, config: CausalConfig, *, dtype: torch.dtype, device: torch.device | str
) -> Iterator[Weights]:
    """Tensors that meet the configuration, while the files are open.

    One CheckpointError lists the missing, extra and misshapen tensors by name, or names the
    file that is absent, cut short or corrupt; no data has been read by then.
    """
    with read_shards(model_dir) as stored:
        _check(stored, config, where=str(model_dir))
        yield StoredWeights(stored, dtype, device)


def check_headers(model_dir: Path, config: CausalConfig) -> None:
    """Raise the CheckpointError that `open_weights` would."""
    with read_shards(model_dir) as stored:
        _check(stored, config, where=str(model_dir))


@dataclass(frozen=True)
class _Layer:
    """Names and shapes of one layer."""

    config: CausalConfig
    number: int

    def shapes(self) -> Iterator[tuple[str, Shape]]:
        config, prefix = self.config, f"model.layers.{self.number}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{prefix}{norm}.weight", (config.hidden_size,)
        yield from self._attention(prefix + "self_attn.")
        if not config.has_experts(self.number):
            yield from _gated(prefix + "mlp.", config.hidden_size, config.intermediate_size)
            return
        assert config.num_experts is not None
        assert config.moe_intermediate_size is not None
        yield f"{prefix}mlp.gate.weight", (config.num_experts, config.hidden_size)
        for expert in range(config.num_experts):
            at = f"{prefix}mlp.experts.{expert}."
            yield from _gated(at, config.hidden_size, config.moe_intermediate_size)

    def _attention(self, prefix: str) -> Iterator[tuple[str, Shape]]:
        config = self.config
        queries = config.num_attention_heads * config.head_dim
        keys = config.num_key_value_heads * config.head_dim
        for name, outputs in (("q_proj", queries), ("k_proj", keys), ("v_proj", keys)):
            yield f"{prefix}{name}.weight", (outputs, config.hidden_size)
            if config.attention_bias:
                yield f"{prefix}{name}.bias", (outputs,)
        yield f"{prefix}o_proj.weight", (config.hidden_size, queries)
        if config.attention_bias:
            yield f"{prefix}o_proj.bias", (config.hidden_size,)
        if config.has_head_norms:
            for name in ("q_norm", "k_norm"):
                yield f"{prefix}{name}.weight", (config.head_dim,)


def expected_shapes(config: CausalConfig) -> dict[str, Shape]:
    """Every tensor that a checkpoint of this configuration stores."""
    table: dict[str, Shape] = {
        "model.embed_tokens.weight": (config.vocab_size, config.hidden_size),
        "model.norm.weight": (config.hidden_size,),
    }
    if not config.tie_word_embeddings:
        table["lm_head.weight"] = (config.vocab_size, config.hidden_size)
    for number in range(config.num_hidden_layers):
        table |= _Layer(config, number).shapes()
    return table


def _gated(prefix: str, hidden: int, inner: int) -> Iterator[tuple[str, Shape]]:
    for name in ("gate_proj", "up_proj"):
        yield f"{prefix}{name}.weight", (inner, hidden)
    yield f"{prefix}down_proj.weight", (hidden, inner)


def _check(stored: Mapping[str, StoredTensor], config: CausalConfig, *, where: str) -> None:
    table = expected_shapes(config)
    complaints = [
        complaint
        for name, shape in table.items()
        if (complaint := _complaint(name, shape, stored.get(name)))
    ]
    complaints += [
        f"{name} is not part of this model"
        for name in sorted(stored.keys() - table.keys())
        if not _may_be_there(name, config)
    ]
    if complaints:
        shown = "; ".join(complaints[:_NAMED_AT_MOST])
        more = f"; {len(complaints)} in all" if len(complaints) > _NAMED_AT_MOST else ""
        raise CheckpointError(
            f"{shown}{more}.",
            where=where,
            remedy="The tensors must match config.json; fetch the checkpoint again.",
        )


def _may_be_there(name: str, config: CausalConfig) -> bool:
    is_tied = name == "lm_head.weight" and config.tie_word_embeddings
    return is_tied or name.endswith(_IGNORED)


def _complaint(name: str, shape: Shape, found: StoredTensor | None) -> str | None:
    if found is None:
        return f"{name} is missing"
    if found.shape != shape:
        return f"{name} has shape {list(found.shape)}, not {list(shape)}"
    if found.dtype not in _PLAIN:
        return f"{name} is stored as {found.dtype}, not as one of {', '.join(_PLAIN)}"
    return None
