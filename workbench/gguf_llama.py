"""A Llama model in a GGUF file, under the names and in the layout of Hugging Face."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gguf
import torch

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_OTHER_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_FIELDS = {
    "vocab_size": "llama.vocab_size",
    "hidden_size": "llama.embedding_length",
    "intermediate_size": "llama.feed_forward_length",
    "num_hidden_layers": "llama.block_count",
    "num_attention_heads": "llama.attention.head_count",
    "num_key_value_heads": "llama.attention.head_count_kv",
    "max_position_embeddings": "llama.context_length",
    "rms_norm_eps": "llama.attention.layer_norm_rms_epsilon",
    "rope_theta": "llama.rope.freq_base",
    "bos_token_id": "tokenizer.ggml.bos_token_id",
    "eos_token_id": "tokenizer.ggml.eos_token_id",
}


def read_llama(path: Path) -> tuple[dict[str, object], dict[str, Tensor]]:
    """`config.json` and the tensors in bfloat16, by name in ascending order."""
    reader = gguf.GGUFReader(path)
    config = {name: _rounded(reader.fields[key].contents()) for name, key in _FIELDS.items()}
    heads = {
        "attn_q": config["num_attention_heads"],
        "attn_k": config["num_key_value_heads"],
    }
    tensors: dict[str, Tensor] = {}
    for stored in reader.tensors:
        values = torch.tensor(gguf.dequantize(stored.data, stored.tensor_type))
        kind = stored.name.split(".")[-2]
        if kind in heads:
            values = _halves_apart(values, int(heads[kind]))
        tensors[_name(stored.name)] = values.to(torch.bfloat16).contiguous()
    config |= {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "bfloat16",
        "hidden_act": "silu",
        "tie_word_embeddings": "lm_head.weight" not in tensors,
    }
    return config, dict(sorted(tensors.items()))


def _name(stored: str) -> str:
    if stored in _OTHER_NAMES:
        return _OTHER_NAMES[stored]
    _, layer, kind, suffix = stored.split(".")
    return f"model.layers.{layer}.{_LAYER_NAMES[kind]}.{suffix}"


def _halves_apart(weight: Tensor, heads: int) -> Tensor:
    """GGUF has the two rows that turn together side by side, Hugging Face half a head apart."""
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def _rounded(value: object) -> object:
    """A float32 of the file as the decimal number that it was."""
    return float(f"{value:.7g}") if isinstance(value, float) else value
