"""Small random V4.1 models, and a harness that runs chunks of sequences through one."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.batch import Capture, DraftBatch, DraftOutput, ForwardBatch
from engine.cache.storage import CacheStorage
from engine.models.deepseek_v41.config import DeepseekV41Config
from engine.models.deepseek_v41.contract import parameters
from engine.models.deepseek_v41.model import DeepseekV41Model
from kernels.engram.reference import hash_constants
from kernels.ops import REFERENCE, Ops

VOCAB = 48


def small_config(
    *,
    window_only: int = 2,
    encoder: tuple[int, ...] = (2,),
    decoder: tuple[int, ...] = (2, 1),
    window: int = 5,
    topk: int = 4,
    candidate_block: int = 2,
    candidate_blocks: int = 3,
    engram: tuple[int, ...] = (1,),
    stages: int = 3,
    **overrides: object,
) -> DeepseekV41Config:
    """A model of a few narrow layers.

    `encoder` gives the layers that read each ratio-2 owner, `decoder` the layers that use each
    index source of the decoder half; owners and sources count as one of them.
    """
    heads = [window_only]
    for count in (*encoder, *decoder):
        heads.append(heads[-1] + count)
    owners = heads[: len(encoder) + 1]
    layers = heads[-1]
    constants = hash_constants(engram, vocab_size=11, token_ids=24, ngram=3, heads=2)
    text = {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "head_dim": 32,
        "qk_rope_head_dim": 8,
        "q_lora_rank": 16,
        "o_lora_rank": 8,
        "o_groups": 2,
        "moe_intermediate_size": 16,
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "norm_topk_prob": True,
        "routed_scaling_factor": 1.5,
        "swiglu_limit": 10.0,
        "rms_norm_eps": 1e-20,
        "rope_theta": 10000.0,
        "compress_rope_theta": 160000.0,
        "rope_scaling": {"factor": 4, "original_max_position_embeddings": 32},
        "max_position_embeddings": 256,
        "sliding_window": window,
        "compress_ratios": [0] * window_only
        + [2] * sum(encoder)
        + [1] * sum(decoder)
        + [0] * stages,
        "kv_source_layer_ids": owners,
        "index_source_layer_ids": heads[:-1],
        "index_n_heads": 2,
        "index_head_dim": 32,
        "index_topk": topk,
        "candidate_source_layer_id": owners[-1],
        "candidate_topk_blocks": candidate_blocks,
        "candidate_block_size": candidate_block,
        "hc_mult": 4,
        "hc_sinkhorn_iters": 4,
        "hc_eps": 1e-6,
        "engram_layer_ids": list(engram),
        "engram_num_embeddings": [found.table_rows for found in constants],
        "engram_max_ngram_size": 3,
        "engram_vocab_size": 11,
        "engram_n_heads": 2,
        "engram_head_dim": 32,
        "engram_pad_token_id": 2,
        "engram_compressed_vocab_size": 24,
        "num_nextn_predict_layers": stages,
        "dspark_block_size": 5,
        "dspark_noise_token_id": VOCAB - 1,
        "dspark_target_layer_ids": list(range(layers - sum(decoder), layers)),
        "dspark_markov_rank": 8,
        "dspark_n_routed_experts": 4,
        "dspark_num_experts_per_tok": 2,
    }
    document = {"model_type": "deepseek_v41", "eos_token_id": 1, "text_config": text | overrides}
    return DeepseekV41Config.from_document(document, where="small_config")


def random_weights(config: DeepseekV41Config, *, seed: int) -> dict[str, torch.Tensor]:
    """float64 weights under released names, scaled so that every part has a say."""
    source = torch.Generator().manual_seed(seed)

    def draw(name: str, shape: tuple[int, ...]) -> torch.Tensor:
        noise = torch.randn(shape, generator=source, dtype=torch.float64)
        if name.endswith(("norm.weight", "q_weight", "k_weight")):
            return 1 + 0.1 * noise
        if name.endswith("embed.weight") or len(shape) == 1:
            return noise
        return noise * 1.5 * shape[-1] ** -0.5

    return {name: draw(name, found.shape) for name, found in parameters(config).items()}


def small_model(
    config: DeepseekV41Config,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    released_caches: bool = False,
    ops: Ops = REFERENCE,
) -> DeepseekV41Model:
    """A model of random weights."""
    return DeepseekV41Model(
        config,
        random_weights(config, seed=seed),
        dtype=dtype,
        released_caches=released_caches,
        engram_token_map=[token // 2 for token in range(config.vocab_size)],
        ops=ops,
    )


@dataclass(frozen=True)
class Chunk:
    """Rows start..end of a sequence; `decoder_start` truncates the decoder half."""

    slot: int
    tokens: list[int]  # of the whole sequence, at least up to `end`
    start: int
    end: int
    decoder_start: int = 0


class Harness:
    """A model and caches for a few sequences whose blocks lie scattered."""

    def __init__(
        self, model: DeepseekV41Model, *, slots: int = 4, blocks: int = 32, backtrack: int = 6
    ) -> None:
        self.model, self.slots, self.blocks = model, slots, blocks
        self.caches = CacheStorage.allocate(
            model.cache_groups(max_backtrack=backtrack),
            blocks=slots * blocks,
            block_tokens=4,
            slots=slots,
            dtype=model._embedding.dtype,
            device="cpu",
        )

    def batch(self, chunks: list[Chunk], *, compact: bool = False) -> ForwardBatch:
        """The chunks side by side; logits of every row that runs the decoder half."""
        lengths = [chunk.end - chunk.start for chunk in chunks]
        starts = [sum(lengths[:i]) for i in range(len(chunks) + 1)]
        tokens = [t for chunk in chunks for t in chunk.tokens[chunk.start : chunk.end]]
        positions = [p for chunk in chunks for p in range(chunk.start, chunk.end)]
        lookback = [
            [chunk.tokens[p - s] if p >= s else -1 for s in range(1, self.model.facts.ngram)]
            for chunk in chunks
            for p in range(chunk.start, chunk.end)
        ]
        kept = [
            starts[i] + p - chunk.start
            for i, chunk in enumerate(chunks)
            for p in range(max(chunk.start, chunk.decoder_start), chunk.end)
        ]
        rows = torch.tensor(kept, dtype=torch.int64)
        table = [[chunk.slot + self.slots * j for j in range(self.blocks)] for chunk in chunks]
        return ForwardBatch(
            token_ids=torch.tensor(tokens),
            positions=torch.tensor(positions),
            sequence_index=torch.tensor([i for i, n in enumerate(lengths) for _ in range(n)]),
            query_start=tuple(starts),
            context_length=tuple(chunk.start for chunk in chunks),
            lookback_ids=torch.tensor(lookback),
            slots=torch.tensor([chunk.slot for chunk in chunks]),
            block_table=torch.tensor(table),
            decoder_start=tuple(chunk.decoder_start for chunk in chunks),
            decoder_rows=rows if compact else None,
            logit_rows=rows,
        )

    def run(
        self, chunks: list[Chunk], *, compact: bool = False, capture: Capture | None = None
    ) -> list[torch.Tensor]:
        """Logits of each chunk's rows from its `decoder_start` on."""
        batch = self.batch(chunks, compact=compact)
        logits = self.model.forward(batch, self.caches, capture).logits
        sizes = [max(0, c.end - max(c.start, c.decoder_start)) for c in chunks]
        return list(logits.split(sizes))

    def draft(self, chunks: list[Chunk], anchors: list[int], length: int = 5) -> DraftOutput:
        """Drafts after the last row of each chunk."""
        batch = DraftBatch(
            anchor_ids=torch.tensor(anchors),
            anchor_positions=torch.tensor([chunk.end for chunk in chunks]),
            slots=torch.tensor([chunk.slot for chunk in chunks]),
            decoder_start=torch.tensor([chunk.decoder_start for chunk in chunks]),
            draft_length=length,
        )
        return self.model.draft(batch, self.caches)
