"""What a model declares about its caches: which rows it keeps, and how they are addressed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RowFormat(StrEnum):
    """How one cache row of `width` values is stored. Bytes and codecs: `kernels.formats`."""

    PLAIN = "plain"  # the model's own dtype, exact
    FLOAT32 = "float32"  # compressor tails, whatever the model's dtype (float64 stays float64)
    FP8_GROUP32 = "fp8_e4m3_group32_ue8m0"  # window rows: 528 bytes at width 512
    FP4_GROUP16 = "fp4_e2m1_group16_e4m3"  # global rows: 288 bytes at width 512
    FP4_GROUP32 = "fp4_e2m1_group32_ue8m0"  # index rows: 68 bytes at width 128


@dataclass(frozen=True, kw_only=True)
class PagedGroup:
    """Rows that live as long as the prefix: row j covers tokens [j*r, (j+1)*r) of a sequence.

    Addressed through the block table: one block holds `block_tokens / tokens_per_row` rows of
    every paged group, so one block id serves them all.
    """

    name: str
    width: int
    tokens_per_row: int
    row_format: RowFormat


@dataclass(frozen=True, kw_only=True)
class RingGroup:
    """The newest `rows` rows of a sequence: position p lives in row p mod rows of its slot."""

    name: str
    width: int
    rows: int
    row_format: RowFormat


CacheGroup = PagedGroup | RingGroup
