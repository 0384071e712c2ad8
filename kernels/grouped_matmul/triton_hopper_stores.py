"""What becomes of sums of `kernels.grouped_matmul.triton_hopper`, in Gluon.

A warp group has float32 sums [64, ROWS], 64 columns of weights by rows in order of their experts.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

UNDO = gl.constexpr(9223372036854775808.0)  # `kernels.quantize.triton_operands.UNDO_FP4`


@gluon.jit
def group_powers(most):
    """2^n that groups of so large values are divided by, and 2^-n; see `group_exponents`."""
    is_finite = most < float("inf")
    most = gl.where(most < 1e-4, 1e-4, most)
    bits = (most * 0.002232142857142857).to(gl.int32, bitcast=True)  # 1 / 448
    exponent = (bits >> 23) + ((bits & 0x7FFFFF) != 0).to(gl.int32)
    up = gl.where(is_finite, (exponent << 23).to(gl.float32, bitcast=True), float("nan"))
    down = gl.where(is_finite, ((254 - exponent) << 23).to(gl.float32, bitcast=True), float("nan"))
    return up, down


@gluon.jit
def rounded(y, GROUP: gl.constexpr):
    """bfloat16 [rows, 16, 4], two groups of 32 columns each row, rounded to e4m3."""
    value = gl.reshape(y.to(gl.float32), (y.shape[0], 16, 2, 2))
    up, down = group_powers(gl.max(gl.max(gl.abs(value), 3), 1))
    up = gl.expand_dims(gl.expand_dims(up, 1), 3)
    down = gl.expand_dims(gl.expand_dims(down, 1), 3)
    value = (value * down).to(gl.float8e4nv).to(gl.float32) * up
    value = gl.reshape(value.to(gl.bfloat16), (y.shape[0], 16, 4))
    return gl.convert_layout(value, y.type.layout)


@gluon.constexpr_function
def sum_layout(rows):
    """Of sums [64, rows] of a group of four warps."""
    return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, rows, 16])


@gluon.constexpr_function
def stored_layout():
    """Of rows [rows, 64] that are stored whole."""
    return gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])


@gluon.jit
def taken_shares(shares, start, end, ROWS: gl.constexpr):
    """The weights of rows, as their sums lie."""
    at = start + gl.arange(0, ROWS, gl.SliceLayout(0, sum_layout(ROWS)))
    return gl.load(shares + at, mask=at < end, other=0.0)


@gluon.jit
def taken_pairs(order, start, end, ROWS: gl.constexpr):
    """The pairs of rows; negative after the last."""
    place = start + gl.arange(0, ROWS, gl.SliceLayout(1, stored_layout()))
    return gl.load(order + place, mask=place < end, other=-1)


@gluon.jit
def store_gated(
    gate, up, share, out, start, end, column, limit, half: gl.constexpr,
    OUTPUTS: gl.constexpr, GROUP: gl.constexpr,
):  # fmt: skip
    """share * swiglu, rounded in groups where GROUP is 32, as the next product takes its inputs.

    Columns are a half of 128 from `column` on.
    """
    ROWS: gl.constexpr = gate.shape[1]
    gate, up = gate * UNDO, up * UNDO
    # Comparisons, so that a NaN stays one.
    gate = gl.where(gate > limit, limit, gate)
    up = gl.where(up > limit, limit, gl.where(up < -limit, -limit, up))
    y = (gate / (1.0 + gl.exp(-gate)) * up * share[None, :]).to(gl.bfloat16)
    # As `triton_spread.ordered`: bit 6 of a column is `half`, bits 4 to 0 and then 5 are before.
    y = gl.reshape(y, (2, 2, 2, 2, 4, ROWS))
    y = gl.reshape(gl.permute(y, (5, 4, 1, 2, 0, 3)), (ROWS, 16, 4))
    STORED: gl.constexpr = gl.BlockedLayout([1, 1, 4], [2, 16, 1], [4, 1, 1], [2, 1, 0])
    y = gl.convert_layout(y, STORED)
    if GROUP > 0:
        y = rounded(y, GROUP)
    place = start + gl.arange(0, ROWS, gl.SliceLayout(1, gl.SliceLayout(2, STORED)))
    high = gl.arange(0, 16, gl.SliceLayout(0, gl.SliceLayout(2, STORED)))
    low = gl.arange(0, 4, gl.SliceLayout(0, gl.SliceLayout(1, STORED)))
    to = place.to(gl.int64) * OUTPUTS + column + half * 4
    to = gl.expand_dims(gl.expand_dims(to, 1), 2)
    to = to + gl.expand_dims(high[None, :] * 8, 2) + gl.expand_dims(low[None, :], 1)
    gl.store(out + to, y, mask=gl.expand_dims(gl.expand_dims(place < end, 1), 2))


@gluon.jit
def store_pairs(total, pair, out, column, OUTPUTS: gl.constexpr):
    """64 columns from `column` on, each row to where its pair came from."""
    value = gl.permute((total * UNDO).to(gl.bfloat16), (1, 0))
    value = gl.convert_layout(value, stored_layout())
    to = column + gl.arange(0, 64, gl.SliceLayout(0, stored_layout()))
    row = pair.to(gl.int64) * OUTPUTS
    gl.store(out + row[:, None] + to[None, :], value, mask=(pair >= 0)[:, None])
