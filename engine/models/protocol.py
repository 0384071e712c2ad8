"""What the runner asks of a model, whatever its architecture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from engine.batch import Capture, DraftBatch, DraftOutput, ForwardBatch, ForwardOutput
    from engine.cache.groups import CacheGroup
    from engine.cache.storage import CacheStorage


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What scheduling needs to know of a model; no tensor, no architecture."""

    vocab_size: int
    max_positions: int  # the longest sequence, prompt and output together
    eos_token_id: int
    window: int  # rows a decoder query sees of its own layer
    draft_block: int  # most drafts a step can propose; 0 = no drafter
    ngram: int  # lookback_ids has ngram - 1 columns; 1 = none
    can_truncate: bool  # has a decoder half that may skip the head of a prompt
    hidden_size: int | None = None  # None: the model does not say


class Model(Protocol):
    """Weights on one device and the forward over them. Not thread safe."""

    facts: ModelFacts

    def cache_groups(self, *, max_backtrack: int) -> tuple[CacheGroup, ...]:
        """Declare the caches; rings hold the window and `max_backtrack` rows beyond it."""
        ...

    def forward(
        self, batch: ForwardBatch, caches: CacheStorage, capture: Capture | None = None
    ) -> ForwardOutput:
        """Run the tokens, write the caches, return the logits asked for.

        Also writes the drafter's context rows for every decoder row. Rows at a position run
        before (a rejected draft) are overwritten.
        """
        ...

    def draft(self, batch: DraftBatch, caches: CacheStorage) -> DraftOutput:
        """Guess the tokens after each anchor. Writes no cache row that `forward` reads."""
        ...
