"""n-gram memory of whole sequences: which table rows each token reads, and the addition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from experiments.training.attention import GatherRows
from kernels.engram.reference import HashConstants, hash_constants, table_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from engine.models.deepseek_v41.config import DeepseekV41Config


class NgramMemory:
    """Hash constants and the token map on one device."""

    def __init__(
        self, config: DeepseekV41Config, token_map: Sequence[int], device: torch.device
    ) -> None:
        self._map = torch.tensor(token_map, dtype=torch.int64, device=device)
        self._pad = int(token_map[config.engram_pad_token_id])
        self._ngram = config.engram_max_ngram_size
        self._constants: dict[int, HashConstants] = {
            layer: constants.to(device)
            for layer, constants in zip(
                config.engram_layer_ids,
                hash_constants(
                    config.engram_layer_ids,
                    vocab_size=config.engram_vocab_size,
                    token_ids=config.engram_compressed_vocab_size,
                    ngram=self._ngram,
                    heads=config.engram_n_heads,
                ),
                strict=True,
            )
        }

    def rows(self, tokens: Tensor) -> dict[int, Tensor]:
        """Table rows of tokens [B, L] for each engram layer: [B * L, columns]."""
        ids = self._map[tokens]
        back = [ids]
        for step in range(1, self._ngram):
            shifted = torch.full_like(ids, self._pad)
            shifted[:, step:] = ids[:, :-step]
            back.append(shifted)
        grams = torch.stack(back, -1).flatten(0, 1)
        return {layer: table_rows(grams, at) for layer, at in self._constants.items()}


def recall(table: Mapping[str, Tensor], layer: int, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What `layers.gated_memory` needs: memory [T, columns * width], its wkv, norms' product."""
    prefix = f"layers.{layer}.engram."
    memory = GatherRows.apply(table[f"{prefix}embed.weight"], rows).flatten(1)
    weight = table[f"{prefix}q_weight"].float() * table[f"{prefix}k_weight"].float()
    return memory, table[f"{prefix}wkv.weight"], weight
