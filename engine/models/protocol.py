"""What the runner asks of a model, whatever its architecture.

The graph rule. A step whose `ForwardBatch.shape` is given may be recorded once, in a graph of
device operations, and replayed for other tokens, positions, slots and blocks. So `forward` (and
`draft`, always) runs it

- from tensors on the device alone: nothing is copied from or to the host, and no value is read;
- in shapes that follow from `StepShape` alone, though not how its chunks share their rows, which
  `sequence_index` tells. True positions are on the device, below `shape.context`: what reads a
  context takes that as its width and leaves out what lies behind each row's own position (a graph
  recorded at short contexts is replayed at long ones);
- in place: it writes no tensor but caches, and those it made itself;
- with padding that nobody notices: rows that are not `live`. Those of whole sequences, and of the
  last chunk, hold token 0 at position 0 of a spare slot and a spare block, which belong to
  nobody; any number of them share those, so they may be written in any order. Those beyond the
  drafts of a live sequence lie at the positions after, in its own rings, and in its own or the
  spare block, and are overwritten before they are read. Padding chooses no expert, nor counts in
  a sum over rows;
- without compiling anything that a step of the same shape has not compiled before.

A model states by `can_capture` that its operations, as resolved, keep the rule for sequences that
decode, and by `can_capture_chunks` for chunks beside them; if not, it is never given such a shape.
"""

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
    packs_rows: bool = True  # its release caches rows in fewer bits than it computes with
    other_eos_token_ids: tuple[int, ...] = ()  # that end a sequence, too


class Model(Protocol):
    """Weights on one device and the forward over them. Not thread safe."""

    facts: ModelFacts
    can_capture: bool  # keeps the graph rule for sequences that decode
    can_capture_chunks: bool  # keeps it for chunks, too

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
