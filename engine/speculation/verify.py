"""Verification by agreement: a draft stands iff the target chose the same token.

The target's choice at a position is a function of its logits there, the request's parameters
and the position (`engine.sampling`), so the text is the one that no draft would have given:
lossless for greedy and for seeded sampling, whatever the draft length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def accept(drafts: Tensor, chosen: Tensor, is_draft: Tensor) -> Tensor:
    """How many leading drafts of each sequence stand: [S].

    chosen[:, i] is the target's token at the position of drafts [S, D]; it has one column more,
    the bonus token, which follows when every draft stands. is_draft [S, D] is False where a
    sequence has fewer than D.
    """
    stands = (drafts == chosen[:, :-1]) & is_draft
    return stands.long().cumprod(dim=1).sum(dim=1)
