"""Engram: n-gram memory added to the streams at the input of a layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.errors import CheckpointError
from kernels.engram.reference import HashConstants, hash_constants
from kernels.matmul.weights import Weight
from kernels.ops import Ops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.models.deepseek_v41.config import DeepseekV41Config
    from engine.models.deepseek_v41.parameters import Weights


@dataclass(frozen=True, kw_only=True)
class TokenMap:
    """Token ids to the smaller vocabulary of the n-grams."""

    compressed: Tensor  # [vocab + 1]: the last entry is the pad, which -1 reaches

    @classmethod
    def build(
        cls, token_map: Sequence[int], config: DeepseekV41Config, device: torch.device
    ) -> TokenMap:
        """CheckpointError where the map does not cover the vocabulary."""
        if len(token_map) != config.vocab_size:
            raise CheckpointError(
                f"the Engram token map has {len(token_map)} entries for {config.vocab_size} ids"
            )
        ids = [*token_map, token_map[config.engram_pad_token_id]]
        return cls(compressed=torch.tensor(ids, dtype=torch.int64, device=device))

    def ngrams(self, token_ids: Tensor, lookback_ids: Tensor) -> Tensor:
        """Compressed ids at p, p-1, ...: [rows, ngram]; the pad before the start (-1)."""
        return self.compressed[torch.cat((token_ids.unsqueeze(1), lookback_ids), 1)]


@dataclass(frozen=True, kw_only=True)
class Engram:
    """Table and gate of one layer."""

    constants: HashConstants
    table: Tensor  # [table rows, head dim]
    project: Weight  # [(n + 1) * width, columns * head dim]: a key per stream, then the value
    weight: Tensor  # [n, width] product of the norms' weights
    eps: float
    ops: Ops

    @classmethod
    def read(cls, weights: Weights, config: DeepseekV41Config, constants: HashConstants) -> Engram:
        """Parameters under `layers.N.engram.`; CheckpointError for a table of another size."""
        table = weights["embed.weight"]
        if table.shape[0] != constants.table_rows:
            raise CheckpointError(
                f"has {table.shape[0]} rows; the primes of this config make {constants.table_rows}",
                where=f"{weights.prefix}embed.weight",
            )
        return cls(
            constants=constants.to(table.device),
            table=table,
            project=weights.matrix("wkv.weight"),
            weight=weights.wide("q_weight") * weights.wide("k_weight"),
            eps=config.rms_norm_eps,
            ops=weights.ops,
        )

    def remember(self, ngrams: Tensor) -> Tensor:
        """Keys and the value of n-grams [rows, ngram]: [rows, (n + 1) * width]."""
        found = self.ops.look_up(ngrams, self.constants, self.table)
        return self.ops.linear(found, self.project)

    def add(self, streams: Tensor, memory: Tensor) -> Tensor:
        """Streams [rows, n, width] with what `remember` found added."""
        return self.ops.gated_add(streams, memory, self.weight, self.eps)


def read_engrams(weights: Weights, config: DeepseekV41Config) -> dict[int, Engram]:
    """The Engram of each layer that has one."""
    constants = hash_constants(
        config.engram_layer_ids,
        vocab_size=config.engram_vocab_size,
        token_ids=config.engram_compressed_vocab_size,
        ngram=config.engram_max_ngram_size,
        heads=config.engram_n_heads,
    )
    return {
        layer: Engram.read(weights.under(f"layers.{layer}.engram."), config, found)
        for layer, found in zip(config.engram_layer_ids, constants, strict=True)
    }
