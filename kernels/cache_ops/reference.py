"""Rows of a cache, where they lie and how they get there: the definition."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels import formats
from kernels.norm.reference import rms_norm
from kernels.rotary.reference import Rotation, rotate


@dataclass(frozen=True, kw_only=True)
class CachedRows:
    """Rows by physical number."""

    tensor: Tensor  # [rows, width] of the activations' dtype, or uint8 [rows, bytes of a row];
    # in pages: uint8 [pages, bytes of a page], contiguous
    width: int
    packing: str | None = None  # of `kernels.formats`; None = values as they are
    page_rows: int | None = None  # a page is the data of so many rows, then all their scales

    @property
    def page_stride(self) -> int:
        """Bytes from page to page, 0 without pages."""
        return 0 if self.page_rows is None else self.tensor.shape[1]

    def read(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """Values of rows of any shape: [*rows.shape, width]."""
        if self.packing is None:
            return self.stored(rows)
        return formats.unpack(self.stored(rows), self.packing, self.width, dtype)

    def stored(self, rows: Tensor) -> Tensor:
        """The same as they lie, packed ones in their bytes."""
        if self.page_rows is None:
            return self.tensor[rows]
        return self.tensor.view(-1)[self._places(rows)]

    def store(self, rows: Tensor, stored: Tensor) -> None:
        """Put values, packed ones where there is a packing, at n rows that differ."""
        if self.page_rows is None:
            self.tensor[rows] = stored.to(self.tensor.dtype)
        else:
            self.tensor.view(-1)[self._places(rows)] = stored

    def _places(self, rows: Tensor) -> Tensor:
        """Where each byte of each row lies, in a packing: [*rows.shape, bytes of a row]."""
        assert self.page_rows is not None
        assert self.packing is not None
        held = formats.data_bytes(self.packing, self.width)
        scales = formats.row_bytes(self.packing, self.width) - held
        page, within = rows // self.page_rows, rows % self.page_rows
        begin = page * self.page_stride
        byte = torch.arange(held + scales, device=rows.device)
        data = (begin + within * held)[..., None] + byte[:held]
        scale = (begin + self.page_rows * held + within * scales)[..., None] + byte[:scales]
        return torch.cat((data, scale), -1)


@dataclass(frozen=True, kw_only=True)
class RowNorm:
    """The RMS norm that a row passes on its way into a cache."""

    weight: Tensor  # [width], at least float32
    eps: float


@dataclass(frozen=True, kw_only=True)
class Pages:
    """Where the logical rows of each query's sequence lie."""

    table: Tensor  # [tables, blocks]; each is that of as many consecutive queries
    rows_per_block: int

    def physical(self, logical: Tensor) -> Tensor:
        """Physical rows of logical rows [queries, n]."""
        shared = len(logical) // max(len(self.table), 1)
        table = self.table if shared == 1 else self.table.repeat_interleave(shared, 0)
        return paged_rows(table, logical, self.rows_per_block)


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


def insert_rows(
    cache: CachedRows, where: Tensor, x: Tensor, norm: RowNorm | None, turn: Rotation
) -> None:
    """Norm, rotate and store x [rows, width] at physical rows [rows], which differ.

    Rounded to x's dtype after the norm and after the rotation. A row whose place is negative is
    not stored.
    """
    values = x if norm is None else rms_norm(x, norm.weight, norm.eps)
    values = rotate(values, turn)
    if cache.packing is not None:
        values = formats.pack(values, cache.packing)
    kept = where >= 0
    cache.store(where[kept], values[kept])
