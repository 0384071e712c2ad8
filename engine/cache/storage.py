"""The cache tensors of one device: one tensor for each group that a model declares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.cache.groups import CacheGroup, PagedGroup, RowFormat
from engine.errors import CapacityError
from kernels import formats
from kernels.precision import at_least_float32

if TYPE_CHECKING:
    from collections.abc import Sequence

_EXACT = (RowFormat.PLAIN, RowFormat.FLOAT32)


@dataclass(frozen=True, kw_only=True)
class CacheStorage:
    """Rows by physical number; who owns which row is the block manager's business.

    A paged group has `blocks * block_tokens / tokens_per_row` rows, block after block. A ring
    group has `slots * rows` rows, slot after slot. Rows start as zeros. Packed groups hold
    uint8 rows; values go in and come out in `dtype`, float32 groups in at least float32.
    """

    groups: dict[str, CacheGroup]
    tensors: dict[str, Tensor]
    blocks: int
    block_tokens: int
    slots: int
    dtype: torch.dtype

    @classmethod
    def allocate(
        cls,
        groups: Sequence[CacheGroup],
        *,
        blocks: int,
        block_tokens: int,
        slots: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
    ) -> CacheStorage:
        """Zeroed rows for every group. `block_tokens` must be whole rows of each paged group.

        CapacityError where the device does not give the memory.
        """
        named = {group.name: group for group in groups}
        assert len(named) == len(groups), "two cache groups share a name"
        rows = {name: _row_count(g, blocks, block_tokens, slots) for name, g in named.items()}
        try:
            tensors = {
                name: _empty_rows(group, rows[name], dtype, device) for name, group in named.items()
            }
        except (RuntimeError, MemoryError) as error:  # torch has no one error for it
            raise CapacityError(
                f"{device} has no memory for caches of {sum(rows.values())} rows: {error}.",
                where="cache_tokens, max_num_seqs",
                remedy="Lower cache_tokens or max_num_seqs.",
            ) from error
        return cls(
            groups=named,
            tensors=tensors,
            blocks=blocks,
            block_tokens=block_tokens,
            slots=slots,
            dtype=dtype,
        )

    def write(self, name: str, rows: Tensor, values: Tensor) -> None:
        """Store values [n, width] at physical rows [n], which must differ from each other."""
        self.tensors[name].index_copy_(0, rows, self._pack(self.groups[name], values))

    def read(self, name: str, rows: Tensor) -> Tensor:
        """Values at physical rows of any shape: [*rows.shape, width]."""
        stored = self.tensors[name].index_select(0, rows.flatten())
        group = self.groups[name]
        return self._unpack(group, stored).view(*rows.shape, group.width)

    def rounded(self, name: str, values: Tensor) -> Tensor:
        """Values [n, width] as they would be read back once written."""
        group = self.groups[name]
        if group.row_format in _EXACT:
            return values
        return formats.quantise_dequantise(values, group.row_format)

    def rows_per_block(self, name: str) -> int:
        """Rows of a paged group in one block."""
        group = self.groups[name]
        assert isinstance(group, PagedGroup), f"{name} is not paged"
        return self.block_tokens // group.tokens_per_row

    @property
    def bytes_per_token(self) -> float:
        """Bytes that one more token of a sequence costs in the paged groups."""
        return sum(
            self._row_bytes(name) / group.tokens_per_row
            for name, group in self.groups.items()
            if isinstance(group, PagedGroup)
        )

    @property
    def bytes_per_slot(self) -> int:
        """Bytes of the rings of one sequence, whatever its length."""
        return sum(
            self._row_bytes(name) * group.rows
            for name, group in self.groups.items()
            if not isinstance(group, PagedGroup)
        )

    def _row_bytes(self, name: str) -> int:
        tensor = self.tensors[name]
        return tensor.shape[1] * tensor.element_size()

    def _pack(self, group: CacheGroup, values: Tensor) -> Tensor:
        if group.row_format in _EXACT:
            return values.to(self.tensors[group.name].dtype)
        return formats.pack(values, group.row_format)

    def _unpack(self, group: CacheGroup, rows: Tensor) -> Tensor:
        if group.row_format in _EXACT:
            return rows
        return formats.unpack(rows, group.row_format, group.width, self.dtype)


def _row_count(group: CacheGroup, blocks: int, block_tokens: int, slots: int) -> int:
    if not isinstance(group, PagedGroup):
        return slots * group.rows
    assert block_tokens % group.tokens_per_row == 0, f"blocks hold part of a row of {group.name}"
    return blocks * block_tokens // group.tokens_per_row


def _empty_rows(
    group: CacheGroup, rows: int, dtype: torch.dtype, device: torch.device | str
) -> Tensor:
    if group.row_format in _EXACT:
        exact = dtype if group.row_format == RowFormat.PLAIN else at_least_float32(dtype)
        return torch.zeros(rows, group.width, dtype=exact, device=device)
    width = formats.row_bytes(group.row_format, group.width)
    return torch.zeros(rows, width, dtype=torch.uint8, device=device)
