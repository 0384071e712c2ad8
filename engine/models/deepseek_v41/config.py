"""The released `config.json` of DeepSeek-V4.1, read into one frozen object.

Field names are the released ones. What layers do follows from the lists alone
(architecture of the release: two window-only layers, an encoder half at ratio 2, a decoder
half at ratio 1; a layer reads the global rows of the newest owner at or before it).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from engine.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path


class IndexMode(StrEnum):
    """Where a layer's selection of global rows comes from."""

    WINDOW_ONLY = "window_only"  # ratio 0: no global rows
    FULL = "full"  # compresses, writes rows and index keys, selects
    REINDEX = "reindex"  # selects again, among the candidates of the candidate source
    REUSE = "reuse"  # reads the last published selection


@dataclass(frozen=True, kw_only=True)
class LayerPlan:
    """What one backbone layer does."""

    layer: int
    ratio: int  # tokens a global row covers; 0 = window only
    mode: IndexMode
    kv_owner: int | None  # layer whose global rows it reads
    engram: int | None  # index into the engram lists
    draft_tap: bool  # its input is a tap of the drafter
    is_candidate_source: bool


@dataclass(frozen=True, kw_only=True)
class DeepseekV41Config:
    """Text configuration, flat; `vision_config` is kept as it is (None: text-only release)."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    head_dim: int
    qk_rope_head_dim: int
    q_lora_rank: int
    o_lora_rank: int
    o_groups: int
    moe_intermediate_size: int
    n_routed_experts: int
    n_shared_experts: int
    num_experts_per_tok: int
    norm_topk_prob: bool
    routed_scaling_factor: float
    swiglu_limit: float
    rms_norm_eps: float
    rope_theta: float
    compress_rope_theta: float
    rope_factor: float
    rope_beta_fast: float
    rope_beta_slow: float
    rope_original_positions: int
    max_position_embeddings: int
    sliding_window: int
    compress_ratios: tuple[int, ...]
    kv_source_layer_ids: tuple[int, ...]
    index_source_layer_ids: tuple[int, ...]
    index_n_heads: int
    index_head_dim: int
    index_topk: int
    candidate_source_layer_id: int
    candidate_topk_blocks: int
    candidate_block_size: int
    hc_mult: int
    hc_sinkhorn_iters: int
    hc_eps: float
    engram_layer_ids: tuple[int, ...]
    engram_num_embeddings: tuple[int, ...]
    engram_max_ngram_size: int
    engram_vocab_size: int
    engram_n_heads: int
    engram_head_dim: int
    engram_pad_token_id: int
    engram_compressed_vocab_size: int
    num_nextn_predict_layers: int
    dspark_block_size: int
    dspark_noise_token_id: int
    dspark_target_layer_ids: tuple[int, ...]
    dspark_markov_rank: int
    dspark_n_routed_experts: int
    dspark_num_experts_per_tok: int
    eos_token_id: int
    bos_token_id: int | None
    weight_block_size: tuple[int, int] | None  # of fp8 linears; None = unquantised release
    expert_dtype: str | None  # "fp4" for mxfp4 experts; None = as the other linears
    vision_config: dict[str, object] | None

    @cached_property
    def decoder_layer(self) -> int:
        """First layer of the decoder half: the first with ratio 1 (20 in the release)."""
        return self.compress_ratios.index(1)

    @cached_property
    def layers(self) -> tuple[LayerPlan, ...]:
        """The plan of every backbone layer."""
        return tuple(self._plan(layer) for layer in range(self.num_hidden_layers))

    def _plan(self, layer: int) -> LayerPlan:
        ratio = self.compress_ratios[layer]
        engram = self.engram_layer_ids.index(layer) if layer in self.engram_layer_ids else None
        owner = _newest(self.kv_source_layer_ids, layer) if ratio else None
        source = _newest(self.index_source_layer_ids, layer) if ratio else None
        if not ratio:
            mode = IndexMode.WINDOW_ONLY
        elif layer in self.kv_source_layer_ids:
            mode = IndexMode.FULL
        else:
            mode = IndexMode.REINDEX if layer == source else IndexMode.REUSE
        return LayerPlan(
            layer=layer,
            ratio=ratio,
            mode=mode,
            kv_owner=owner,
            engram=engram,
            draft_tap=layer in self.dspark_target_layer_ids,
            is_candidate_source=layer == self.candidate_source_layer_id,
        )

    @classmethod
    def load(cls, model_dir: Path) -> DeepseekV41Config:
        """Read `model_dir/config.json`. CheckpointError names a missing or wrong field."""
        path = model_dir / "config.json"
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise CheckpointError(
                "there is no config.json",
                where=str(model_dir),
                remedy="Give a checkpoint directory, or make one with `workbench make-checkpoint`.",
            ) from error
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise CheckpointError(f"cannot be read: {error}", where=str(path)) from error
        return cls.from_document(document, where=str(path))

    @classmethod
    def from_document(cls, document: dict[str, object], *, where: str) -> DeepseekV41Config:
        """Flatten the nested document of the release and check it."""
        flat = _flatten(document, where)
        missing = sorted(f.name for f in fields(cls) if f.name not in flat)
        if missing:
            raise CheckpointError(f"lacks the field {', '.join(missing)}", where=where)
        config = cls(**{f.name: flat[f.name] for f in fields(cls)})  # type: ignore[arg-type]
        _check(config, where)
        return config


def _newest(layers: tuple[int, ...], layer: int) -> int | None:
    return max((source for source in layers if source <= layer), default=None)


def _flatten(document: dict[str, object], where: str) -> dict[str, object]:
    if document.get("model_type") != "deepseek_v41" or "text_config" not in document:
        raise CheckpointError(
            f"is not a DeepSeek-V4.1 config (model_type {document.get('model_type')!r})",
            where=where,
            remedy="This engine reads model_type deepseek_v41 with a nested text_config.",
        )
    text = dict(document["text_config"])  # type: ignore[call-overload]
    rope = dict(text.get("rope_scaling") or {})
    quantisation = dict(document.get("quantization_config") or {})  # type: ignore[call-overload]
    block = quantisation.get("weight_block_size")
    names = {
        "rope_factor": rope.get("factor", 1.0),
        "rope_beta_fast": rope.get("beta_fast", 32),
        "rope_beta_slow": rope.get("beta_slow", 1),
        "rope_original_positions": rope.get(
            "original_max_position_embeddings", text.get("max_position_embeddings")
        ),
        "eos_token_id": document.get("eos_token_id", 1),
        "bos_token_id": document.get("bos_token_id"),
        "weight_block_size": tuple(block) if block else None,
        "expert_dtype": quantisation.get("expert_dtype"),
        "vision_config": document.get("vision_config"),
    }
    lists = {key: tuple(value) for key, value in text.items() if isinstance(value, list)}
    return {**text, **lists, **names}


def _check(config: DeepseekV41Config, where: str) -> None:
    rules = {
        "compress_ratios must have one entry per layer and per DSpark stage": len(
            config.compress_ratios
        )
        == config.num_hidden_layers + config.num_nextn_predict_layers,
        "compress_ratios may only hold 0, 1 and 2": set(config.compress_ratios) <= {0, 1, 2},
        "compress_ratios needs a ratio-1 layer (the decoder half)": 1 in config.compress_ratios,
        "every kv_source layer must be an index_source layer": set(config.kv_source_layer_ids)
        <= set(config.index_source_layer_ids),
        "candidate_source_layer_id must be the last kv_source layer": bool(
            config.kv_source_layer_ids
        )
        and config.candidate_source_layer_id == config.kv_source_layer_ids[-1],
        "candidate blocks must be able to hold index_topk rows": config.candidate_topk_blocks
        * config.candidate_block_size
        - (config.candidate_block_size - 1)
        >= config.index_topk,
        "qk_rope_head_dim must be even and at most head_dim": config.qk_rope_head_dim % 2 == 0
        and config.qk_rope_head_dim <= min(config.head_dim, config.index_head_dim),
        "o_groups must divide the heads": config.num_attention_heads % config.o_groups == 0,
        "engram lists must have one entry per engram layer": len(config.engram_layer_ids)
        == len(config.engram_num_embeddings),
    }
    if 1 in config.compress_ratios:
        rules["every layer must read rows of its own ratio"] = _ratios_agree(config)
        rules["Engram layers must lie in the encoder half"] = all(
            layer < config.decoder_layer for layer in config.engram_layer_ids
        )
        rules["DSpark taps must lie in the decoder half"] = all(
            layer >= config.decoder_layer for layer in config.dspark_target_layer_ids
        )
    for sentence, holds in rules.items():
        if not holds:
            raise CheckpointError(sentence, where=where)


def _ratios_agree(config: DeepseekV41Config) -> bool:
    ratios = config.compress_ratios
    for layer in range(config.num_hidden_layers):
        if ratios[layer]:
            owner = _newest(config.kv_source_layer_ids, layer)
            if owner is None or ratios[owner] != ratios[layer]:
                return False
    return True
