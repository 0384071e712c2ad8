"""The sizes of a model that is trained, and the released `config.json` that follows from them."""

from __future__ import annotations

from dataclasses import dataclass

from engine.models.deepseek_v41.config import DeepseekV41Config
from kernels.engram.reference import hash_constants

BLOCK = 5  # drafts of a DSpark block
STREAMS = 2
_RATIOS = (0, 0, 2, 2, 2, 1, 1, 1, 1, 1, 0, 0, 0)
_ENGRAM_LAYERS = (1, 3)
_ENGRAM_HEADS = 2
_NGRAM = 4


@dataclass(frozen=True, kw_only=True)
class TokenFacts:
    """What the tokenizer decides about a model."""

    vocab_size: int
    compressed_vocab_size: int  # distinct texts after the Engram normalisation
    noise_token_id: int
    pad_token_id: int = 2


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The numbers of a model that a recipe chooses."""

    hidden: int
    heads: int
    head_dim: int
    rope_dim: int
    q_lora: int
    o_lora: int
    expert_width: int
    experts: int
    draft_experts: int
    window: int
    index_topk: int
    candidate_blocks: int
    ngram_rows: int  # smallest prime of an n-gram table's columns comes after it
    markov_rank: int
    positions: int


def document(sizes: Sizes, tokens: TokenFacts) -> dict[str, object]:
    """Return the nested `config.json` of a model in the released form."""
    constants = hash_constants(
        _ENGRAM_LAYERS,
        vocab_size=sizes.ngram_rows,
        token_ids=tokens.compressed_vocab_size,
        ngram=_NGRAM,
        heads=_ENGRAM_HEADS,
    )
    rows = [layer.table_rows for layer in constants]
    return {
        "architectures": ["DeepseekV41ForCausalLM"],
        "model_type": "deepseek_v41",
        "dtype": "bfloat16",
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": tokens.pad_token_id,
        "quantization_config": {
            "quant_method": "fp8",
            "activation_scheme": "dynamic",
            "weight_block_size": [32, 32],
            "scale_fmt": "ue8m0",
            "expert_dtype": "fp4",
        },
        "text_config": _FIXED | _sized(sizes, tokens) | {"engram_num_embeddings": rows},
    }


_FIXED: dict[str, object] = {
    "model_type": "deepseek_v41_text",
    "num_hidden_layers": 10,
    "num_key_value_heads": 1,
    "o_groups": 2,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "scoring_func": "sqrtsoftplus",
    "topk_method": "noaux_tc",
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.5,
    "swiglu_limit": 10.0,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-20,
    "rope_theta": 10000.0,
    "compress_rope_theta": 160000.0,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "tie_word_embeddings": False,
    "use_cache": True,
    "initializer_range": 0.02,
    "compress_ratios": list(_RATIOS),
    "kv_source_layer_ids": [2, 5],
    "index_source_layer_ids": [2, 5, 7],
    "candidate_source_layer_id": 5,
    "candidate_block_size": 8,
    "hc_mult": STREAMS,
    "hc_sinkhorn_iters": 20,
    "hc_eps": 1e-6,
    "engram_layer_ids": list(_ENGRAM_LAYERS),
    "engram_max_ngram_size": _NGRAM,
    "engram_n_heads": _ENGRAM_HEADS,
    "engram_head_dim": 32,
    "num_nextn_predict_layers": 3,
    "dspark_block_size": BLOCK,
    "dspark_target_layer_ids": [7, 8, 9],
    "dspark_num_experts_per_tok": 2,
    "index_n_heads": 4,
    "index_head_dim": 32,
}


def _sized(sizes: Sizes, tokens: TokenFacts) -> dict[str, object]:
    return {
        "vocab_size": tokens.vocab_size,
        "hidden_size": sizes.hidden,
        "num_attention_heads": sizes.heads,
        "head_dim": sizes.head_dim,
        "qk_rope_head_dim": sizes.rope_dim,
        "q_lora_rank": sizes.q_lora,
        "o_lora_rank": sizes.o_lora,
        "moe_intermediate_size": sizes.expert_width,
        "n_routed_experts": sizes.experts,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4,
            "beta_fast": 32,
            "beta_slow": 1,
            "original_max_position_embeddings": sizes.positions // 4,
        },
        "max_position_embeddings": sizes.positions,
        "sliding_window": sizes.window,
        "index_topk": sizes.index_topk,
        "candidate_topk_blocks": sizes.candidate_blocks,
        "engram_vocab_size": sizes.ngram_rows,
        "engram_pad_token_id": tokens.pad_token_id,
        "engram_compressed_vocab_size": tokens.compressed_vocab_size,
        "dspark_noise_token_id": tokens.noise_token_id,
        "dspark_markov_rank": sizes.markov_rank,
        "dspark_n_routed_experts": sizes.draft_experts,
    }


def model_config(sizes: Sizes, tokens: TokenFacts) -> DeepseekV41Config:
    """Return the checked config of `document`."""
    return DeepseekV41Config.from_document(document(sizes, tokens), where="the training recipe")
