"""What a `config.json` must be like before the model is built from it.

Three questions in order, so that each may count on the answers before it: is the document nested
as the release nests it (`flatten`), is every field of its type (`typed`), and do the values fit
each other (`check_values`).
"""

from __future__ import annotations

import math
from itertools import chain
from types import NoneType
from typing import TYPE_CHECKING, get_args

from engine.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from engine.models.deepseek_v41.config import DeepseekV41Config

_RELEASED_NAMES = {
    "rope_factor": "rope_scaling.factor",
    "rope_beta_fast": "rope_scaling.beta_fast",
    "rope_beta_slow": "rope_scaling.beta_slow",
    "rope_original_positions": "rope_scaling.original_max_position_embeddings",
    "weight_block_size": "quantization_config.weight_block_size",
    "expert_dtype": "quantization_config.expert_dtype",
}
_MAY_BE_ZERO = frozenset(
    {
        "num_nextn_predict_layers",
        "n_shared_experts",
        "hc_sinkhorn_iters",
        "candidate_source_layer_id",
        "engram_pad_token_id",
        "dspark_noise_token_id",
        "eos_token_id",
        "bos_token_id",
        "hc_eps",
        "rms_norm_eps",
    }
)
_LAYER_LISTS = (
    "kv_source_layer_ids",
    "index_source_layer_ids",
    "engram_layer_ids",
    "dspark_target_layer_ids",
)
_TOKENS = ("engram_pad_token_id", "dspark_noise_token_id", "eos_token_id", "bos_token_id")


def flatten(document: object, where: str) -> dict[str, object]:
    """The fields of the nested document by their flat names; lists become tuples."""
    if not isinstance(document, dict):
        raise _wrong("the document", document, "a JSON object", where)
    if document.get("model_type") != "deepseek_v41" or "text_config" not in document:
        raise CheckpointError(
            f"is not a DeepSeek-V4.1 config (model_type {document.get('model_type')!r})",
            where=where,
            remedy="This engine reads model_type deepseek_v41 with a nested text_config, and the "
            "architectures LlamaForCausalLM, Qwen3ForCausalLM and Qwen3MoeForCausalLM.",
        )
    text = _nested(document, "text_config", where)
    rope = _nested(text, "rope_scaling", where, optional=True)
    quantisation = _nested(document, "quantization_config", where, optional=True)
    names = {
        "rope_factor": rope.get("factor", 1.0),
        "rope_beta_fast": rope.get("beta_fast", 32),
        "rope_beta_slow": rope.get("beta_slow", 1),
        "rope_original_positions": rope.get(
            "original_max_position_embeddings", text.get("max_position_embeddings")
        ),
        "eos_token_id": document.get("eos_token_id", 1),
        "bos_token_id": document.get("bos_token_id"),
        "weight_block_size": quantisation.get("weight_block_size"),
        "expert_dtype": quantisation.get("expert_dtype"),
        "vision_config": document.get("vision_config"),
    }
    flat = {**text, **names}
    return {k: tuple(v) if isinstance(v, list) else v for k, v in flat.items()}


def typed(flat: Mapping[str, object], hints: Mapping[str, object], where: str) -> dict[str, object]:
    """The values of the fields in `hints`, each of its type and not below its least value."""
    for name, hint in hints.items():
        kinds = get_args(hint) if NoneType in get_args(hint) else (hint,)
        least = 0 if name in _MAY_BE_ZERO else 1
        if not any(_fits(flat[name], kind, least) for kind in kinds):
            expected = " or ".join(_in_words(kind, least) for kind in kinds)
            raise _wrong(name, flat[name], expected, where)
    return {name: flat[name] for name in hints}


def check_values(config: DeepseekV41Config, where: str) -> None:
    """Refuse values that do not fit each other: the first rule that does not hold."""
    for name, value, expected in chain(_misfit_names(config), _misfit_counts(config)):
        raise _wrong(name, value, expected, where)
    for rules in (_rules_of_ratios, _rules_of_sizes):
        for sentence, holds in rules(config).items():
            if not holds:
                raise CheckpointError(sentence, where=where)


def newest(layers: tuple[int, ...], layer: int) -> int | None:
    """The last of some layers at or before `layer`."""
    return max((source for source in layers if source <= layer), default=None)


def _wrong(name: str, value: object, expected: str, where: str) -> CheckpointError:
    shown = _RELEASED_NAMES.get(name, name)
    return CheckpointError(f"{shown} is {value!r:.80}, expected {expected}", where=where)


def _nested(
    document: Mapping[str, object], name: str, where: str, *, optional: bool = False
) -> dict[str, object]:
    value = document.get(name)
    if value is None and optional:
        return {}
    if not isinstance(value, dict):
        raise _wrong(name, value, "a JSON object", where)
    return value


def _fits(value: object, kind: object, least: int) -> bool:
    if kind is float:
        return type(value) in (int, float) and math.isfinite(value) and _at_least(value, least)  # type: ignore[arg-type]
    if kind is int:
        return type(value) is int and value >= least
    if kind in (bool, str, NoneType):
        return type(value) is kind
    if kind == tuple[int, int]:
        return _is_list_of_ints(value, 1) and len(value) == 2  # type: ignore[arg-type]
    if kind == tuple[int, ...]:
        return _is_list_of_ints(value, 0)
    return isinstance(value, dict)


def _at_least(value: float, least: int) -> bool:
    return value > 0 if least else value >= 0


def _is_list_of_ints(value: object, least: int) -> bool:
    return isinstance(value, tuple) and all(type(n) is int and n >= least for n in value)


def _in_words(kind: object, least: int) -> str:
    names = {
        int: f"a whole number of at least {least}",
        float: f"a finite number {'above' if least else 'of at least'} 0",
        bool: "true or false",
        str: "a string",
        NoneType: "null",
        tuple[int, int]: "a list of two positive whole numbers",
        tuple[int, ...]: "a list of whole numbers of at least 0",
    }
    return names.get(kind, "a JSON object")  # type: ignore[call-overload]


def _misfit_names(config: DeepseekV41Config) -> Iterator[tuple[str, object, str]]:
    """Fields that name a layer or a token that there is not."""
    layers, vocab = config.num_hidden_layers, config.vocab_size
    for name in _LAYER_LISTS:
        value = getattr(config, name)
        if list(value) != sorted(set(value)) or any(layer >= layers for layer in value):
            yield name, list(value), f"rising layers from 0 to {layers - 1}"
    for name in _TOKENS:
        value = getattr(config, name)
        if value is not None and value >= vocab:
            yield name, value, f"a token id from 0 to {vocab - 1}"


def _misfit_counts(config: DeepseekV41Config) -> Iterator[tuple[str, object, str]]:
    for used, there in (
        ("num_experts_per_tok", "n_routed_experts"),
        ("dspark_num_experts_per_tok", "dspark_n_routed_experts"),
    ):
        if getattr(config, used) > getattr(config, there):
            yield used, getattr(config, used), f"at most {there} = {getattr(config, there)}"
    if config.expert_dtype not in (None, "fp4", "fp8"):
        yield "expert_dtype", config.expert_dtype, "fp4, fp8 or null"
    if config.engram_layer_ids and config.engram_max_ngram_size < 2:
        yield "engram_max_ngram_size", config.engram_max_ngram_size, "at least 2"


def _rules_of_ratios(config: DeepseekV41Config) -> dict[str, bool]:
    ratios, stages = config.compress_ratios, config.num_nextn_predict_layers
    backbone = ratios[: config.num_hidden_layers]
    sources = config.kv_source_layer_ids
    rules = {
        "compress_ratios must have one entry per layer and per DSpark stage": len(ratios)
        == config.num_hidden_layers + stages,
        "compress_ratios may only hold 0, 1 and 2": set(ratios) <= {0, 1, 2},
        "compress_ratios needs a ratio-1 layer (the decoder half)": 1 in backbone,
        "compress_ratios must be 0 for DSpark stages": not any(ratios[len(backbone) :]),
        "every kv_source layer must be an index_source layer": set(sources)
        <= set(config.index_source_layer_ids),
        "candidate_source_layer_id must be the last kv_source layer": bool(sources)
        and config.candidate_source_layer_id == sources[-1],
    }
    if all(rules.values()):
        decoder = config.decoder_layer
        rules |= {
            "every index_source layer must have a ratio of 1 or 2 in compress_ratios": all(
                ratios[layer] for layer in config.index_source_layer_ids
            ),
            "every layer must read rows of its own ratio": _ratios_agree(config),
            "Engram layers must lie in the encoder half": all(
                layer < decoder for layer in config.engram_layer_ids
            ),
            "DSpark taps must lie in the decoder half": all(
                layer >= decoder for layer in config.dspark_target_layer_ids
            ),
            "dspark_target_layer_ids must name a tap for the DSpark stages": bool(
                config.dspark_target_layer_ids
            )
            or not stages,
        }
    return rules


def _rules_of_sizes(config: DeepseekV41Config) -> dict[str, bool]:
    return {
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


def _ratios_agree(config: DeepseekV41Config) -> bool:
    ratios = config.compress_ratios
    for layer in range(config.num_hidden_layers):
        if ratios[layer]:
            owner = newest(config.kv_source_layer_ids, layer)
            if owner is None or ratios[owner] != ratios[layer]:
                return False
    return True
