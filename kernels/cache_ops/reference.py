"""Where the row of a position lies in a cache: the definition."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def ring_rows(slots: Tensor, positions: Tensor, rows: int) -> Tensor:
    """Physical row of each position in the ring of its slot, `rows` rows a slot.

    Negative positions wrap like the others: they name a row, which is not theirs.
    """
    return slots * rows + positions % rows


def paged_rows(block_table: Tensor, logical: Tensor, rows_per_block: int) -> Tensor:
    """Physical row of each logical row.

    block_table [B, blocks], logical [B, N] within the table. Returns [B, N].
    """
    blocks = block_table.gather(-1, logical // rows_per_block)
    return blocks * rows_per_block + logical % rows_per_block
