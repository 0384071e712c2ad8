"""What is trained and how: sizes, schedule and seeds, all in one frozen object a name.

`nano` is the checkpoint that ships. `smoke` is the same machine at a size that a test can train.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.models.deepseek_v41.config import DeepseekV41Config
from experiments.errors import PlanError
from kernels.engram.reference import hash_constants

if TYPE_CHECKING:
    from collections.abc import Mapping


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


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Consecutive steps of one shape."""

    steps: int
    length: int  # tokens a sequence
    sparse: bool  # selection on; off = every visible global row
    rounded: bool  # weights as shipped, and caches of half the sequences as released


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A training run."""

    name: str
    sizes: Sizes
    seed: int
    step_tokens: int
    phases: tuple[Phase, ...]
    draft: Phase
    anchors_every: int  # one block of drafts is trained every so many tokens
    muon_lr: float
    adam_lr: float
    draft_lr_scale: float
    decay_from: float  # share of the steps after which the rate falls linearly to 0
    warmup_steps: int
    weight_decay: float
    bias_step: float
    truncated_share: float  # of the sequences, from the first sparse phase on
    index_stride: int
    index_weight: float
    repeats: Mapping[str, int]  # passes over a kind for each pass over the others

    @property
    def target_steps(self) -> int:
        """Steps before the target is frozen."""
        return sum(phase.steps for phase in self.phases)

    @property
    def keep_tokens(self) -> int:
        """Rows that truncation keeps: window + draft length + 1."""
        return self.sizes.window + BLOCK + 1

    def scaled(self, factor: float) -> Recipe:
        """The same recipe with `factor` times as many steps of every phase."""
        phases = (*self.phases, self.draft)
        *target, drafter = (replace(p, steps=max(1, round(p.steps * factor))) for p in phases)
        return replace(self, phases=tuple(target), draft=drafter)

    def phase_at(self, step: int) -> Phase:
        """The phase of a target step."""
        for phase in self.phases:
            if step < phase.steps:
                return phase
            step -= phase.steps
        return self.phases[-1]


BLOCK = 5  # drafts of a DSpark block
STREAMS = 2
_RATIOS = (0, 0, 2, 2, 2, 1, 1, 1, 1, 1, 0, 0, 0)
_ENGRAM_LAYERS = (1, 3)
_ENGRAM_HEADS = 2
_NGRAM = 4

_NANO = Recipe(
    name="nano",
    sizes=Sizes(
        hidden=192,
        heads=6,
        head_dim=64,
        rope_dim=16,
        q_lora=64,
        o_lora=64,
        expert_width=96,
        experts=8,
        draft_experts=4,
        window=64,
        index_topk=64,
        candidate_blocks=24,
        ngram_rows=1000,
        markov_rank=24,
        positions=4096,
    ),
    seed=20261129,
    step_tokens=65536,
    phases=(
        Phase(steps=1470, length=1024, sparse=False, rounded=False),
        Phase(steps=3150, length=1024, sparse=True, rounded=False),
        Phase(steps=368, length=4096, sparse=True, rounded=True),
    ),
    draft=Phase(steps=1806, length=1024, sparse=True, rounded=True),
    anchors_every=4,
    muon_lr=0.02,
    adam_lr=3e-3,
    draft_lr_scale=1.0,
    decay_from=0.35,
    warmup_steps=100,
    weight_decay=0.1,
    bias_step=1e-3,
    truncated_share=0.5,
    index_stride=8,
    index_weight=1.0,
    repeats={},
)

_SMOKE = Recipe(
    name="smoke",
    sizes=Sizes(
        hidden=64,
        heads=2,
        head_dim=32,
        rope_dim=16,
        q_lora=32,
        o_lora=32,
        expert_width=32,
        experts=4,
        draft_experts=2,
        window=16,
        index_topk=8,
        candidate_blocks=4,
        ngram_rows=40,
        markov_rank=8,
        positions=256,
    ),
    seed=1,
    step_tokens=256,
    phases=(
        Phase(steps=9, length=64, sparse=False, rounded=False),
        Phase(steps=6, length=64, sparse=True, rounded=False),
        Phase(steps=3, length=128, sparse=True, rounded=True),
    ),
    draft=Phase(steps=6, length=64, sparse=True, rounded=True),
    anchors_every=4,
    muon_lr=0.02,
    adam_lr=5e-3,
    draft_lr_scale=1.0,
    decay_from=0.4,
    warmup_steps=2,
    weight_decay=0.1,
    bias_step=1e-3,
    truncated_share=0.5,
    index_stride=4,
    index_weight=1.0,
    repeats={},
)

RECIPES = {recipe.name: recipe for recipe in (_NANO, _SMOKE)}


def find(name: str) -> Recipe:
    """Return the recipe of a name. PlanError lists the names there are."""
    try:
        return RECIPES[name]
    except KeyError as error:
        raise PlanError(
            f"there is no training recipe {name!r}", remedy=f"Use one of {', '.join(RECIPES)}."
        ) from error


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
