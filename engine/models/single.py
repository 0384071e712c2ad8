"""One sequence run by itself, without scheduler or block manager."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.batch import Capture, DraftBatch, DraftOutput, ForwardBatch
from engine.cache.storage import CacheStorage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.models.protocol import Model

_BLOCK_TOKENS = 64


class SingleSequence:
    """A model and caches for one sequence of at most `capacity` tokens.

    `decoder_start` truncates the decoder half (compact): rows before it run the encoder half
    only. Not thread safe; owns its caches.
    """

    def __init__(
        self,
        model: Model,
        *,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
        decoder_start: int = 0,
    ) -> None:
        self.tokens: list[int] = []  # what the caches hold
        self._model, self._device, self._decoder_start = model, device, decoder_start
        self._blocks = -(-capacity // _BLOCK_TOKENS)
        self._caches = CacheStorage.allocate(
            model.cache_groups(max_backtrack=model.facts.draft_block + 1),
            blocks=self._blocks,
            block_tokens=_BLOCK_TOKENS,
            slots=1,
            dtype=dtype,
            device=device,
        )

    def run(self, token_ids: Sequence[int], capture: Capture | None = None) -> Tensor:
        """Append tokens; logits of those that run the decoder half: [rows, vocab]."""
        start = len(self.tokens)
        self.tokens.extend(token_ids)
        return self._model.forward(self._batch(start), self._caches, capture).logits

    def draft(self, anchor: int, length: int) -> DraftOutput:
        """Guess what follows `anchor`, the token after the cached ones."""
        batch = DraftBatch(
            anchor_ids=self._tensor([anchor]),
            anchor_positions=self._tensor([len(self.tokens)]),
            slots=self._tensor([0]),
            decoder_start=self._tensor([self._decoder_start]),
            draft_length=length,
        )
        return self._model.draft(batch, self._caches)

    def _batch(self, start: int) -> ForwardBatch:
        end = len(self.tokens)
        first_kept = min(max(start, self._decoder_start), end)
        kept = torch.arange(first_kept - start, end - start, device=self._device)
        back = range(1, self._model.facts.ngram)
        lookback = [[self.tokens[p - s] if p >= s else -1 for s in back] for p in range(start, end)]
        return ForwardBatch(
            token_ids=self._tensor(self.tokens[start:]),
            positions=torch.arange(start, end, device=self._device),
            sequence_index=torch.zeros(end - start, dtype=torch.int64, device=self._device),
            query_start=(0, end - start),
            context_length=(start,),
            lookback_ids=self._tensor(lookback).view(end - start, len(back)),
            slots=self._tensor([0]),
            block_table=torch.arange(self._blocks, device=self._device).unsqueeze(0),
            decoder_start=(self._decoder_start,),
            decoder_rows=kept if self._decoder_start else None,
            logit_rows=kept,
        )

    def _tensor(self, values: object) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._device)
