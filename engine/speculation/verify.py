"""Verification by agreement: a draft stands iff the target chose the same token.

The target's choice at a position is a function of its logits there, the request's parameters
and the position (`engine.sampling`), so the text is the one that no draft would have given:
lossless for greedy and for seeded sampling, whatever the draft length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def accept(drafts: Sequence[int], chosen: Sequence[int]) -> int:
    """How many leading drafts stand.

    `chosen[i]` is the target's token at the position of `drafts[i]`; it has one entry more,
    the bonus token, which follows when every draft stands.
    """
    for index, draft in enumerate(drafts):
        if draft != chosen[index]:
            return index
    return len(drafts)
