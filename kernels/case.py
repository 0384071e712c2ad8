"""One operation at one width, on fresh random inputs, with the least bytes that it must move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.cost import Cost, Number
from kernels.registry import Implementation

Arguments = tuple[object, ...]
Make = Callable[[int, torch.dtype, torch.device], Arguments]
Run = Callable[..., object]

TIMED_ROWS = (1, 32, 128, 2048, 8192)
VALUE_BYTES = 2  # of the bfloat16 activations of cases that are timed


def called(run: Run, arguments: Arguments) -> object:
    """What the operation returns."""
    return run(*arguments)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One operation at one width; rows are free."""

    op: str
    name: str
    make: Make
    bytes_per_row: Callable[[int], int]  # by the bytes of one value of the activations
    fixed_bytes: int = 0  # parameters, read once
    bytes_shared: Callable[[int, int], int] = lambda rows, size: 0  # by rows, and bytes of a value
    flops: Callable[[int], int] = lambda rows: 0  # of matrix products, by rows
    number: Number = "bf16"  # that those products multiply at the best
    timed_rows: tuple[int, ...] = TIMED_ROWS
    checked_rows: tuple[int, ...] | None = None  # where it is not for the usual counts
    head_dim: int | None = None  # where implementations ask for it
    weights: str | None = None  # the same
    call: Callable[[Run, Arguments], object] = called
    observe: Callable[[Run, Arguments], object] = called  # the result, where it is not returned
    is_rounding: bool = False  # the result depends on roundings: compared with the same dtype
    limit: float | None = None  # of the error, where that of the dtype is not it
    bfloat16_limit: float | None = None  # the same for bfloat16 alone: what is rounded often
    is_invariant: bool = True  # a row comes out the same whatever runs beside it
    waits: bool = False  # the definition waits for the device, and cannot be captured

    def is_served_by(self, one: Implementation, arch: int | None, dtype: torch.dtype) -> bool:
        """Whether an implementation is of this operation, and written for this case there."""
        name = str(dtype).removeprefix("torch.")
        lacking = one.needs.lacking(arch, name, self.head_dim, self.weights)
        return one.op == self.op and lacking is None

    def cost(self, rows: int, size: int) -> Cost:
        """The least work of so many rows, with activations of `size` bytes a value."""
        each = rows * self.bytes_per_row(size)
        return Cost(
            bytes=each + self.fixed_bytes + self.bytes_shared(rows, size),
            flops=self.flops(rows),
            number=self.number,
        )


def normal(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Values of a standard normal, rounded to a dtype."""
    return torch.randn(shape, dtype=torch.float32, device=device).to(dtype)
