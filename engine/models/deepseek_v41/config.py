"""The released `config.json` of DeepSeek-V4.1, read into one frozen object.

Field names are the released ones. What layers do follows from the lists alone
(architecture of the release: two window-only layers, an encoder half at ratio 2, a decoder
half at ratio 1; a layer reads the global rows of the newest owner at or before it).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, get_type_hints

from engine.checkpoint_directory import CONFIG_FILE, read_config
from engine.errors import CheckpointError
from engine.models.deepseek_v41 import config_checks

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
        owner = config_checks.newest(self.kv_source_layer_ids, layer) if ratio else None
        source = config_checks.newest(self.index_source_layer_ids, layer) if ratio else None
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
        return cls.from_document(read_config(model_dir), where=str(model_dir / CONFIG_FILE))

    @classmethod
    def from_document(cls, document: object, *, where: str) -> DeepseekV41Config:
        """Flatten the nested document of the release and check it.

        CheckpointError names the first field that is missing, of the wrong type or out of range,
        what was expected and what was found.
        """
        flat = config_checks.flatten(document, where)
        missing = sorted(f.name for f in fields(cls) if f.name not in flat)
        if missing:
            raise CheckpointError(f"lacks the field {', '.join(missing)}", where=where)
        values = config_checks.typed(flat, get_type_hints(cls), where)
        config = cls(**values)  # type: ignore[arg-type]
        config_checks.check_values(config, where)
        return config
