"""Which tensors a DeepSeek-V4.1 checkpoint holds: their names, shapes and stored types.

Derived from the config alone; the released config gives the released checkpoint, 96,085
tensors and 510,286,023,000 bytes. Two views of one table:

- `parameters`: what a model computes with, one entry a weight, dequantised shapes;
- `expected_tensors`: what lies in the files, scales and packed weights included.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from engine.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.models.deepseek_v41.config import DeepseekV41Config

TABLE_GROUP = 32  # Engram rows carry one scale per 32 values
MXFP4_GROUP = 32

DTYPE_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E8M0": 1, "I8": 1, "U8": 1
}  # fmt: skip


class Storage(StrEnum):
    """How the release stores a parameter."""

    FP8_BLOCKS = "fp8_blocks"  # e4m3 [o, i] + ue8m0 scale per tile of weight_block_size
    FP8_TABLE = "fp8_table"  # e4m3 [rows, width] + ue8m0 scale per 32 values of a row
    MXFP4 = "mxfp4"  # two e2m1 a byte [o, i / 2] + ue8m0 scale per 32 inputs of a row
    BF16 = "bf16"
    F32 = "f32"  # kept in float32 at least, whatever the model computes in


@dataclass(frozen=True)
class Parameter:
    """A weight as the model sees it: its dequantised shape, and how the release stores it."""

    shape: tuple[int, ...]
    storage: Storage


@dataclass(frozen=True)
class TensorSpec:
    """A tensor as it lies in a file; `dtype` is the safetensors name (BF16, F8_E4M3, ...)."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def size_bytes(self) -> int:
        """Bytes of its data."""
        return math.prod(self.shape) * DTYPE_BYTES[self.dtype]


def expected_tensors(
    config: DeepseekV41Config, *, include_vision: bool = True
) -> dict[str, TensorSpec]:
    """Return every tensor of a released checkpoint of this config.

    With `weight_block_size` None the checkpoint is unquantised: no `.scale`, every matrix BF16.
    `include_vision` False leaves out what text-only loading skips (`vision_parameters`).
    """
    table = dict(parameters(config))
    if include_vision:
        table |= vision_parameters(config)
    return {
        stored: spec
        for name, parameter in table.items()
        for stored, spec in stored_tensors(name, parameter, config).items()
    }


def stored_tensors(
    name: str, parameter: Parameter, config: DeepseekV41Config
) -> dict[str, TensorSpec]:
    """Return the tensors that hold one parameter in its released form: itself, and its scale."""
    shape, storage = parameter.shape, parameter.storage
    scale = name.removesuffix(".weight") + ".scale"
    if storage is Storage.MXFP4:
        packed = TensorSpec((shape[0], shape[1] // 2), "I8")
        return {name: packed, scale: TensorSpec((shape[0], shape[1] // MXFP4_GROUP), "F8_E8M0")}
    if storage in (Storage.FP8_BLOCKS, Storage.FP8_TABLE):
        tiles = tuple(-(-n // step) for n, step in zip(shape, tile(parameter, config), strict=True))
        return {name: TensorSpec(shape, "F8_E4M3"), scale: TensorSpec(tiles, "F8_E8M0")}
    return {name: TensorSpec(shape, "F32" if storage is Storage.F32 else "BF16")}


def tile(parameter: Parameter, config: DeepseekV41Config) -> tuple[int, int]:
    """Return the (rows, columns) that share one scale of an fp8 parameter."""
    if parameter.storage is Storage.FP8_TABLE:
        return (1, TABLE_GROUP)
    assert config.weight_block_size is not None
    return config.weight_block_size


def is_packed(parameter: Parameter) -> bool:
    """Whether products can take it as it is stored."""
    return parameter.storage in (Storage.FP8_BLOCKS, Storage.MXFP4)


def input_group(name: str, parameter: Parameter, config: DeepseekV41Config) -> int | None:
    """Values of the other operand that the release rounds together; None where it rounds none."""
    if name.endswith("wo_a.weight"):
        return None
    if parameter.storage is Storage.MXFP4 or config.weight_block_size is None:
        return MXFP4_GROUP
    return config.weight_block_size[1]


def parameters(config: DeepseekV41Config) -> dict[str, Parameter]:
    """Return the parameters of the text model, DSpark stages included, by released name."""
    table = dict(_ends(config))
    for plan in config.layers:
        table |= _layer(config, f"layers.{plan.layer}.", config.n_routed_experts)
        table |= _compressor(config, plan.layer)
        if plan.engram is not None:
            table |= _engram(config, plan.layer, config.engram_num_embeddings[plan.engram])
    for stage in range(config.num_nextn_predict_layers):
        table |= _layer(config, f"mtp.{stage}.", config.dspark_n_routed_experts)
    if config.num_nextn_predict_layers:
        table |= _draft_ends(config)
    return table


def vision_parameters(config: DeepseekV41Config) -> dict[str, Parameter]:
    """Return what only image input uses, and text-only loading skips; {} without a vision_config.

    The tower, the aligner, the three learned image rows, and the routers' `bias_vl`.
    """
    if config.vision_config is None:
        return {}
    hidden = config.hidden_size
    routers = {
        name.removesuffix("bias") + "bias_vl": parameter
        for name, parameter in parameters(config).items()
        if name.endswith("ffn.gate.bias")
    }
    rows = {
        f"image_{row}": Parameter((hidden,), Storage.BF16) for row in ("start", "end", "newline")
    }
    return routers | rows | dict(_tower(config.vision_config, hidden))


def _ends(config: DeepseekV41Config) -> Iterator[tuple[str, Parameter]]:
    for name in ("embed", "head"):
        yield f"{name}.weight", Parameter((config.vocab_size, config.hidden_size), Storage.BF16)
    yield "norm.weight", Parameter((config.hidden_size,), Storage.BF16)


def _linear(config: DeepseekV41Config, outputs: int, inputs: int) -> Parameter:
    quantised = config.weight_block_size is not None
    return Parameter((outputs, inputs), Storage.FP8_BLOCKS if quantised else Storage.BF16)


def _layer(config: DeepseekV41Config, prefix: str, experts: int) -> dict[str, Parameter]:
    hidden, streams = config.hidden_size, config.hc_mult
    mixes = (2 + streams) * streams
    table = {
        f"{prefix}{norm}.weight": Parameter((hidden,), Storage.BF16)
        for norm in ("attn_norm", "ffn_norm")
    }
    for sublayer in ("hc_attn", "hc_ffn"):
        table[f"{prefix}{sublayer}_fn"] = Parameter((mixes, streams * hidden), Storage.F32)
        table[f"{prefix}{sublayer}_base"] = Parameter((mixes,), Storage.F32)
        table[f"{prefix}{sublayer}_scale"] = Parameter((3,), Storage.F32)
    return table | _attention(config, prefix + "attn.") | _experts(config, prefix + "ffn.", experts)


def _attention(config: DeepseekV41Config, prefix: str) -> dict[str, Parameter]:
    heads, groups = config.num_attention_heads, config.o_groups
    hidden, rank = config.hidden_size, config.q_lora_rank
    latent = groups * config.o_lora_rank
    return {
        f"{prefix}wq_a.weight": _linear(config, rank, hidden),
        f"{prefix}wq_b.weight": _linear(config, heads * config.head_dim, rank),
        f"{prefix}wkv.weight": _linear(config, config.head_dim, hidden),
        f"{prefix}wo_a.weight": _linear(config, latent, heads * config.head_dim // groups),
        f"{prefix}wo_b.weight": _linear(config, hidden, latent),
        f"{prefix}q_norm.weight": Parameter((rank,), Storage.BF16),
        f"{prefix}kv_norm.weight": Parameter((config.head_dim,), Storage.BF16),
        f"{prefix}attn_sink": Parameter((heads,), Storage.F32),
    }


def _compressor(config: DeepseekV41Config, layer: int) -> dict[str, Parameter]:
    prefix, hidden = f"layers.{layer}.attn.", config.hidden_size
    width, index_width = config.head_dim, config.index_head_dim
    table: dict[str, Parameter] = {}
    if layer in config.kv_source_layer_ids:
        gated = ("wkv", "wgate") if config.compress_ratios[layer] > 1 else ("wkv",)
        for name in gated:
            table[f"{prefix}compressor.{name}.weight"] = Parameter((width, hidden), Storage.BF16)
        table[f"{prefix}compressor.norm.weight"] = Parameter((width,), Storage.BF16)
        table[f"{prefix}indexer.wk.weight"] = Parameter((index_width, width), Storage.BF16)
        table[f"{prefix}indexer.k_norm.weight"] = Parameter((index_width,), Storage.BF16)
    if layer in config.index_source_layer_ids:
        heads = config.index_n_heads
        query = _linear(config, heads * index_width, config.q_lora_rank)
        table[f"{prefix}indexer.wq_b.weight"] = query
        table[f"{prefix}indexer.weights_proj.weight"] = Parameter((heads, hidden), Storage.BF16)
    return table


def _experts(config: DeepseekV41Config, prefix: str, experts: int) -> dict[str, Parameter]:
    hidden, inner = config.hidden_size, config.moe_intermediate_size
    shared = inner * config.n_shared_experts
    table = {
        f"{prefix}gate.weight": Parameter((experts, hidden), Storage.BF16),
        f"{prefix}gate.bias": Parameter((experts,), Storage.F32),
        f"{prefix}shared_experts.w1.weight": _linear(config, shared, hidden),
        f"{prefix}shared_experts.w3.weight": _linear(config, shared, hidden),
        f"{prefix}shared_experts.w2.weight": _linear(config, hidden, shared),
    }
    up, down = _linear(config, inner, hidden), _linear(config, hidden, inner)
    if config.expert_dtype == "fp4":
        up, down = (Parameter(part.shape, Storage.MXFP4) for part in (up, down))
    for expert in range(experts):
        for name, part in (("w1", up), ("w3", up), ("w2", down)):
            table[f"{prefix}experts.{expert}.{name}.weight"] = part
    return table


def _engram(config: DeepseekV41Config, layer: int, rows: int) -> dict[str, Parameter]:
    prefix, width = f"layers.{layer}.engram.", config.engram_head_dim
    columns = (config.engram_max_ngram_size - 1) * config.engram_n_heads
    hidden, streams = config.hidden_size, config.hc_mult
    quantised = config.weight_block_size is not None
    return {
        f"{prefix}embed.weight": Parameter(
            (rows, width), Storage.FP8_TABLE if quantised else Storage.BF16
        ),
        f"{prefix}wkv.weight": _linear(config, (streams + 1) * hidden, columns * width),
        f"{prefix}q_weight": Parameter((streams, hidden), Storage.BF16),
        f"{prefix}k_weight": Parameter((streams, hidden), Storage.BF16),
    }


def _draft_ends(config: DeepseekV41Config) -> dict[str, Parameter]:
    hidden, rank = config.hidden_size, config.dspark_markov_rank
    last = f"mtp.{config.num_nextn_predict_layers - 1}."
    taps = len(config.dspark_target_layer_ids)
    return {
        "mtp.0.main_proj.weight": _linear(config, hidden, taps * hidden),
        "mtp.0.main_norm.weight": Parameter((hidden,), Storage.BF16),
        f"{last}norm.weight": Parameter((hidden,), Storage.BF16),
        f"{last}markov_head.embed.weight": Parameter((config.vocab_size, rank), Storage.BF16),
        f"{last}markov_head.head.weight": Parameter((config.vocab_size, rank), Storage.BF16),
        f"{last}confidence_head.proj.weight": Parameter((1, hidden + rank), Storage.BF16),
    }


def _tower(vision: dict[str, object], hidden: int) -> Iterator[tuple[str, Parameter]]:
    width, inner = _size(vision, "hidden_size"), _size(vision, "intermediate_size")
    pixels = 3 * _size(vision, "patch_size") ** 2
    unfolded = width * _size(vision, "downsample_ratio") ** 2
    shapes: dict[str, tuple[int, ...]] = {
        "vision.patch_embed.proj.weight": (width, pixels),
        "vision.patch_embed.proj.bias": (width,),
        "vision.norm.weight": (width,),
        "aligner.w1.weight": (hidden, unfolded),
        "aligner.w1.bias": (hidden,),
        "aligner.w2.weight": (hidden, hidden),
        "aligner.w2.bias": (hidden,),
    }
    for block in range(_size(vision, "num_hidden_layers")):
        prefix = f"vision.blocks.{block}."
        shapes |= {f"{prefix}{norm}.weight": (width,) for norm in ("norm1", "norm2")}
        shapes |= {
            f"{prefix}attn.wqkv.weight": (3 * width, width),
            f"{prefix}attn.wqkv.bias": (3 * width,),
            f"{prefix}attn.wo.weight": (width, width),
            f"{prefix}attn.wo.bias": (width,),
            f"{prefix}mlp.w1.weight": (2 * inner, width),
            f"{prefix}mlp.w2.weight": (width, inner),
        }
    for name, shape in shapes.items():
        yield name, Parameter(shape, Storage.BF16)


def _size(vision: dict[str, object], field: str) -> int:
    value = vision.get(field)
    if not isinstance(value, int) or value <= 0:
        raise CheckpointError(f"{field} must be a positive whole number.", where="vision_config")
    return value
