"""The configs of random models: every mechanism of the release, at toy size and at full width."""

from __future__ import annotations

from dataclasses import dataclass

_EOS, _PAD, _NOISE = 257, 258, 259  # ids from 256 on are no bytes; 256 begins a text


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A config.json in the released form, and how many parameters go into one file."""

    document: dict[str, object]
    shard_parameters: int


def _document(text: dict[str, object], positions: int) -> dict[str, object]:
    """Nest `text` as the release does; its context is `positions`, a quarter of it unscaled."""
    return {
        "architectures": ["DeepseekV41ForCausalLM"],
        "model_type": "deepseek_v41",
        "dtype": "bfloat16",
        "bos_token_id": 256,
        "eos_token_id": _EOS,
        "pad_token_id": _PAD,
        "quantization_config": {
            "quant_method": "fp8",
            "activation_scheme": "dynamic",
            "weight_block_size": [32, 32],
            "scale_fmt": "ue8m0",
            "expert_dtype": "fp4",
        },
        "text_config": {
            **_COMMON,
            **text,
            "max_position_embeddings": positions,
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 4,
                "beta_fast": 32,
                "beta_slow": 1,
                "original_max_position_embeddings": positions // 4,
            },
        },
    }


_COMMON: dict[str, object] = {
    "model_type": "deepseek_v41_text",
    "vocab_size": 512,
    "num_key_value_heads": 1,
    "n_shared_experts": 1,
    "scoring_func": "sqrtsoftplus",
    "topk_method": "noaux_tc",
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.5,
    "swiglu_limit": 10.0,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-20,
    "rope_theta": 10000,
    "compress_rope_theta": 160000,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "tie_word_embeddings": False,
    "use_cache": True,
    "initializer_range": 0.02,
    "hc_mult": 4,
    "hc_sinkhorn_iters": 20,
    "hc_eps": 1e-6,
    "candidate_block_size": 8,
    "engram_max_ngram_size": 4,
    "engram_pad_token_id": _PAD,
    "engram_compressed_vocab_size": 483,  # distinct Engram keys of bytes and 256 other ids
    "num_nextn_predict_layers": 3,
    "dspark_block_size": 5,
    "dspark_noise_token_id": _NOISE,
}

TOY = Shape(
    shard_parameters=2**40,  # one file
    document=_document(
        {
            "hidden_size": 64,
            "num_hidden_layers": 10,
            "num_attention_heads": 4,
            "head_dim": 64,
            "qk_rope_head_dim": 16,
            "q_lora_rank": 32,
            "o_lora_rank": 32,
            "o_groups": 2,
            "moe_intermediate_size": 32,
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
            "sliding_window": 32,
            "compress_ratios": [0] * 2 + [2] * 3 + [1] * 5 + [0] * 3,
            "kv_source_layer_ids": [2, 5],
            "index_source_layer_ids": [2, 5, 7],
            "index_n_heads": 4,
            "index_head_dim": 32,
            "index_topk": 32,
            "candidate_source_layer_id": 5,
            "candidate_topk_blocks": 16,
            "engram_layer_ids": [1, 3],
            "engram_num_embeddings": [3144, 3424],  # sums of the primes after 499
            "engram_vocab_size": 500,
            "engram_n_heads": 2,
            "engram_head_dim": 32,
            "dspark_target_layer_ids": [7, 8, 9],
            "dspark_markov_rank": 32,
            "dspark_n_routed_experts": 4,
            "dspark_num_experts_per_tok": 2,
        },
        positions=2048,
    ),
)

SMALL = Shape(
    shard_parameters=16 * 2**20,
    document=_document(
        {
            "hidden_size": 256,
            "num_hidden_layers": 16,
            "num_attention_heads": 8,
            "head_dim": 128,
            "qk_rope_head_dim": 32,
            "q_lora_rank": 128,
            "o_lora_rank": 64,
            "o_groups": 4,
            "moe_intermediate_size": 128,
            "n_routed_experts": 24,
            "num_experts_per_tok": 4,
            "sliding_window": 128,
            "compress_ratios": [0] * 2 + [2] * 6 + [1] * 8 + [0] * 3,
            "kv_source_layer_ids": [2, 5, 8],
            "index_source_layer_ids": [2, 5, 8, 11, 14],
            "index_n_heads": 8,
            "index_head_dim": 64,
            "index_topk": 128,
            "candidate_source_layer_id": 8,
            "candidate_topk_blocks": 64,
            "engram_layer_ids": [1, 5],
            "engram_num_embeddings": [48400, 49568],  # sums of the primes after 3999
            "engram_vocab_size": 4000,
            "engram_n_heads": 4,
            "engram_head_dim": 64,
            "dspark_target_layer_ids": [13, 14, 15],
            "dspark_markov_rank": 64,
            "dspark_n_routed_experts": 12,
            "dspark_num_experts_per_tok": 3,
        },
        positions=8192,
    ),
)

EIGHT_LAYERS = Shape(
    shard_parameters=2**31,
    document=_document(
        {
            "vocab_size": 129280,
            "hidden_size": 5120,
            "num_hidden_layers": 8,
            "num_attention_heads": 64,
            "head_dim": 512,
            "qk_rope_head_dim": 64,
            "q_lora_rank": 1280,
            "o_lora_rank": 1024,
            "o_groups": 8,
            "moe_intermediate_size": 2304,
            "n_routed_experts": 384,
            "num_experts_per_tok": 6,
            "sliding_window": 128,
            "compress_ratios": [0] * 2 + [2] * 2 + [1] * 4 + [0] * 3,
            "kv_source_layer_ids": [2, 4],
            "index_source_layer_ids": [2, 4, 6],
            "index_n_heads": 32,
            "index_head_dim": 128,
            "index_topk": 512,
            "candidate_source_layer_id": 4,
            "candidate_topk_blocks": 2048,
            "engram_layer_ids": [1],
            "engram_num_embeddings": [1_000_842],  # sum of the primes after 41,599
            "engram_vocab_size": 41_600,
            "engram_n_heads": 8,
            "engram_head_dim": 256,
            "engram_compressed_vocab_size": 99_092,
            "dspark_target_layer_ids": [5, 6, 7],
            "dspark_markov_rank": 256,
            "dspark_n_routed_experts": 128,
            "dspark_num_experts_per_tok": 3,
        },
        positions=1 << 20,
    ),
)
"""The widths of DeepSeek-V4.1-Flash in eight layers that cover every role, to measure with.

Window only; the same with Engram; an owner of ratio 2 and a layer that reads its selection; an
owner of ratio 1, where the decoder half begins, one that reads its selection, one that selects
again among its candidates, one that reads that. The Engram table is cut to a million
rows of the release's 384 million.
"""
