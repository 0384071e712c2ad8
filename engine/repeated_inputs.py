"""Decode steps in a row: of a step that repeats the one before it, only what moves is laid out.

While sequences decode, all that the device is told of them stays but their newest tokens, the
positions of those, and blocks that are new.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from engine.staging import StagingRing
from engine.step_inputs import tokens_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from engine.request_table import RequestTable
    from engine.step import ScheduledSequence
    from engine.step_inputs import StepInputs, StepInputsBuilder

    Entries = tuple[ScheduledSequence, ...]


@dataclass(frozen=True, slots=True)
class _Kept:
    """The newest step that can be repeated; its tensors are no one else's."""

    inputs: StepInputs
    slots: NDArray[np.int64]

    @classmethod
    def of(cls, inputs: StepInputs) -> _Kept:
        own = replace(
            inputs,
            ints={name: tensor.clone() for name, tensor in inputs.ints.items()},
            rules={name: tensor.clone() for name, tensor in inputs.rules.items()},
        )
        return cls(own, np.array([entry.slot.id for entry in inputs.entries]))

    def is_repeated_by(self, entries: Entries) -> bool:
        before = self.inputs.entries
        return len(entries) == len(before) and all(
            now.sequence is then.sequence and now.slot == then.slot and _is_plain(now)
            for now, then in zip(entries, before, strict=True)
        )


class RepeatedInputs:
    """`StepInputsBuilder.build`, by less where it can be. In the order of launches."""

    def __init__(self, builder: StepInputsBuilder, device: str) -> None:
        self._builder = builder
        self._ring = StagingRing(device, torch.int64)
        self._kept: _Kept | None = None

    def build(self, entries: Entries, table: RequestTable) -> StepInputs:
        """As the builder's own."""
        kept = self._kept
        if kept is not None and kept.is_repeated_by(entries):
            return self._repeat(kept, entries, table)
        inputs = self._builder.build(entries, table)
        is_whole = inputs.decoder_rows == len(entries)
        can_repeat = is_whole and all(_is_plain(entry) for entry in entries)
        self._kept = _Kept.of(inputs) if can_repeat else None
        return inputs

    def _repeat(self, kept: _Kept, entries: Entries, table: RequestTable) -> StepInputs:
        counts = np.array([entry.block_count for entry in entries])
        columns, holdings = self._builder.columns, [entry.holding for entry in entries]
        moved = self._ring.upload(
            {
                "tokens": [token for entry in entries for token in tokens_of(entry, columns)],
                "first": [entry.first for entry in entries],
                **table.news_of_blocks(holdings, kept.slots, counts),
            }
        )
        return replace(
            kept.inputs,
            entries=entries,
            ints={**kept.inputs.ints, **moved},
            widest_table=int(counts.max()),
        )


def _is_plain(entry: ScheduledSequence) -> bool:
    """Whether it runs its newest token alone, which the host knows, and chooses by a rule that
    does not change from step to step.
    """
    params = entry.sequence.request.sampling
    output_tokens = entry.settled - entry.sequence.prompt_tokens
    return (
        entry.known == 1
        and not entry.drafts
        and entry.samples
        and not entry.is_ahead
        and params.logprobs is None
        and not params.prompt_logprobs
        and params.golden_token_ids is None
        and params.min_tokens <= output_tokens
    )
