"""What work costs at the least: bytes to move, operations to do, and the time that both take.

floor = max(bytes / bandwidth, operations / rate), with the ceilings of a device measured in the
same run as what is divided by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Number = Literal["bf16", "fp8"]  # that matrix instructions multiply


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Each input read once, each output written once; a multiplication and an addition are two."""

    bytes: int
    flops: int = 0  # of matrix products
    number: Number = "bf16"

    def __add__(self, other: Cost) -> Cost:
        """Both, one after the other; of one kind of product, where both have some."""
        assert not (self.flops and other.flops) or self.number == other.number
        return Cost(
            bytes=self.bytes + other.bytes,
            flops=self.flops + other.flops,
            number=self.number if self.flops else other.number,
        )


@dataclass(frozen=True, kw_only=True)
class Ceilings:
    """The most that a device was seen to do."""

    copy_bytes_s: float  # read and written by a large copy
    bf16_flops_s: float
    fp8_flops_s: float

    def floor_s(self, cost: Cost) -> float:
        """The least seconds that the work can take."""
        rate = self.bf16_flops_s if cost.number == "bf16" else self.fp8_flops_s
        return max(cost.bytes / self.copy_bytes_s, cost.flops / rate)
