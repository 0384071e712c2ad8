"""Matrix products whose rows do not depend on how many rows run beside them.

A row is added up in one order whatever the batch: how the inputs are cut into slices, how many
are taken at a time, and the shape of the matrix instruction follow from the matrix alone (rules:
batch invariance as in the batch_invariant_ops and vLLM projects). Rows are taken `ROWS` at a
time, so that a single one costs what `ROWS` do, and many twice as many.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.matmul.reference import rounded_input
from kernels.matmul.triton_cuda import suits_kernels
from kernels.matmul.triton_packed import FewRows, add_slices_kernel, sliced_product
from kernels.matmul.weights import Fp8Weight, Weight, dense

ROWS = 64  # of a tile: the least that Hopper's widest instruction takes
WIDE_ROWS = 128  # of a tile where bfloat16 rows are many; the instruction is the same
MANY_ROWS = 512
WANTED_PROGRAMS = 256  # below this many, inputs are cut into slices
MOST_SLICES = 4
LEAST_SLICE = 1024  # inputs
MOST_ROWS = 2048  # that are cut into slices at once: their sums lie in memory


@triton.jit(do_not_specialize=["rows", "groups", "slice_blocks"])
def invariant_kernel(
    x,
    weight,
    out,
    rows,
    groups,
    outputs,
    inputs,
    slice_blocks,
    EVEN: tl.constexpr,
    ROWS: tl.constexpr,
    OUT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """x [rows, groups, inputs] . weight [groups, outputs, inputs]: a slice of the inputs, parts
    [slices, rows, groups, outputs]. EVEN: BLOCK divides the inputs.
    """
    blocks = tl.cdiv(outputs, OUT)
    group = tl.program_id(1) // blocks
    column = (tl.program_id(1) - group * blocks) * OUT + tl.arange(0, OUT)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    part = tl.program_id(2).to(tl.int64)
    at = tl.arange(0, BLOCK)
    # Columns beyond the last repeat the first, and are not stored; rows beyond are not read.
    inside = (row < rows)[:, None]
    held_row = row.to(tl.int64) * groups + group
    held_column = tl.where(column < outputs, column, 0) + group.to(tl.int64) * outputs
    values = x + held_row[:, None] * inputs + at[None, :]
    weights = weight + held_column[:, None] * inputs + at[None, :]
    start = tl.program_id(2) * slice_blocks * BLOCK
    end = tl.minimum(start + slice_blocks * BLOCK, inputs)
    total = tl.zeros((ROWS, OUT), tl.float32)
    for here in range(start, end, BLOCK):
        if EVEN:
            left = tl.load(values + here, mask=inside, other=0.0)
            right = tl.load(weights + here)
        else:
            near = (here + at < inputs)[None, :]
            left = tl.load(values + here, mask=inside & near, other=0.0)
            right = tl.load(weights + here, mask=near, other=0.0)
        total = tl.dot(left, tl.trans(right), total, input_precision="ieee")
    place = (part * rows + row) * groups + group
    to = out + place[:, None] * outputs + column[None, :]
    tl.store(to, total, mask=inside & (column < outputs)[None, :])


@dataclass(frozen=True)
class Cut:
    """How a product is cut: a function of the matrix and of what it is made of, never of rows."""

    outputs: int
    block: int
    slices: int
    warps: int
    stages: int

    @classmethod
    def of(cls, outputs: int, inputs: int, groups: int, dtype: torch.dtype) -> Cut:
        """For plain matrices."""
        slices = slices_of(groups * triton.cdiv(outputs, 128), inputs)
        if dtype == torch.bfloat16:
            return cls(outputs=128, block=64, slices=slices, warps=4, stages=4)
        return cls(outputs=64, block=32, slices=slices, warps=4, stages=2)


def slices_of(programs: int, inputs: int) -> int:
    """Into how many slices inputs are cut where so many programs share the outputs."""
    return max(1, min(MOST_SLICES, WANTED_PROGRAMS // programs, inputs // LEAST_SLICE))


def packed_cut(outputs: int, inputs: int, groups: int) -> FewRows:
    """For fp8 tiles."""
    slices = slices_of(groups * triton.cdiv(outputs, 64), inputs)
    return FewRows(outputs=64, block=64, slices=slices, warps=4, stages=3)


def plain_product(x: Tensor, weight: Tensor, cut: Cut, dtype: torch.dtype) -> Tensor:
    """x [rows, groups, inputs], weight [groups, outputs, inputs] (groups may be absent where they
    are 1) of one dtype, float32 or bfloat16: [rows, groups, outputs] in `dtype`.
    """
    rows, groups, inputs = x.shape
    outputs = weight.shape[-2]
    blocks = triton.cdiv(triton.cdiv(inputs, cut.block), cut.slices)
    slices = triton.cdiv(triton.cdiv(inputs, cut.block), blocks)
    out = torch.empty((rows, groups, outputs), dtype=dtype, device=x.device)
    parts = out if slices == 1 else out.new_empty((slices, *out.shape), dtype=torch.float32)
    columns = groups * triton.cdiv(outputs, cut.outputs)
    is_wide = rows >= MANY_ROWS and x.dtype == torch.bfloat16
    tile = WIDE_ROWS if is_wide else ROWS
    invariant_kernel[(triton.cdiv(rows, tile), columns, slices)](
        x.contiguous(),
        weight.contiguous(),
        parts,
        rows,
        groups,
        outputs,
        inputs,
        blocks,
        EVEN=inputs % cut.block == 0,
        ROWS=tile,
        OUT=cut.outputs,
        BLOCK=cut.block,
        num_warps=cut.warps,
        num_stages=cut.stages - 1 if is_wide else cut.stages,
    )
    if slices > 1:
        size = out.numel()
        add_slices_kernel[(triton.cdiv(size, 1024),)](
            parts, out, size, SLICES=slices, BLOCK=1024, num_warps=4
        )
    return out


def linear(x: Tensor, weight: Weight) -> Tensor:
    """See kernels.matmul.reference; fp8 tiles with bfloat16 x stay packed on the way into the
    product, other packings are unpacked in a pass of their own.
    """
    return _flat(x, weight, None)


def grouped_linear(x: Tensor, weight: Weight) -> Tensor:
    """See kernels.matmul.reference; as `linear`."""
    return _product(x, weight, None)


def wide_linear(x: Tensor, weight: Tensor) -> Tensor:
    """See kernels.matmul.reference; added up in float32."""
    return _flat(x, weight, torch.float32)


def _flat(x: Tensor, weight: Weight, dtype: torch.dtype | None) -> Tensor:
    product = _product(x.reshape(-1, 1, x.shape[-1]), weight, dtype)
    return product.squeeze(1).unflatten(0, x.shape[:-1])


def _product(x: Tensor, weight: Weight, dtype: torch.dtype | None) -> Tensor:
    """x [rows, groups, inputs]: [rows, groups, outputs], in the dtype of the product or another."""
    groups, inputs = x.shape[1:]
    outputs = weight.shape[-2]
    if isinstance(weight, Fp8Weight) and suits_kernels(x, weight):
        cut = packed_cut(outputs, inputs, groups)
        run = partial(sliced_product, weight=weight, cut=cut, tile=ROWS)
    else:
        rounded = rounded_input(x, weight)
        plain = weight if isinstance(weight, Tensor) else dense(weight, x.dtype)
        x = rounded.to(plain.dtype)
        cut = Cut.of(outputs, inputs, groups, plain.dtype)
        run = partial(plain_product, weight=plain, cut=cut, dtype=dtype or plain.dtype)
    if not len(x):
        return x.new_empty((0, groups, outputs), dtype=dtype)
    pieces = x.split(MOST_ROWS if cut.slices > 1 else len(x))
    done = [run(piece.contiguous()) for piece in pieces]
    return done[0] if len(done) == 1 else torch.cat(done)
