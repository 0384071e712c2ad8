"""Small Llama, Qwen3 and Qwen3-MoE configurations for the engine's own tests."""

from engine.models.causal_lm.config import CausalConfig

BASE = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "eos_token_id": 2,
}
LLAMA = {**BASE, "architectures": ["LlamaForCausalLM"], "attention_bias": True}
QWEN3 = {
    **BASE,
    "architectures": ["Qwen3ForCausalLM"],
    "head_dim": 16,
    "tie_word_embeddings": True,
}
QWEN3_MOE = {
    **BASE,
    "architectures": ["Qwen3MoeForCausalLM"],
    "head_dim": 16,
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "norm_topk_prob": True,
    "mlp_only_layers": [1],
}
DOCUMENTS = {"llama": LLAMA, "qwen3": QWEN3, "qwen3_moe": QWEN3_MOE}


def causal_config(document, **changes):
    return CausalConfig.from_document({**document, **changes}, where="test")
