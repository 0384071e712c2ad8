"""Products of a few rows with weights in blocks, in vector instructions.

A block is [pairs of inputs, OUTPUTS, 2] bfloat16 values, so that a sum of each output is kept in
a register while the block streams by. numba has no vectors, and LLVM finds none in such a loop.
Each row is summed in the same order whatever the number of rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kernels.fused_linear.blocks import OUTPUTS
from kernels.numba_bits import compiled

if TYPE_CHECKING:
    from collections.abc import Sequence

PAIR_BYTES = 4 * OUTPUTS  # of a pair of inputs of all outputs
MOST_ROWS = 4  # whose sums fit into the registers beside what they are made of
_LANES = 16
_I32, _I64, _FLOAT = ir.IntType(32), ir.IntType(64), ir.FloatType()
_WORDS, _SUMS = ir.VectorType(_I32, _LANES), ir.VectorType(_FLOAT, _LANES)
_FUSED = ir.FunctionType(_SUMS, (_SUMS,) * 3)
_ADDRESSES = (types.int64,) * 6


@compiled
def multiply_block(rows, block, x, x_bytes, made, made_bytes, pairs) -> None:
    """Products of float32 rows with a block from an address on, OUTPUTS float32 a row.

    x and made are addresses of rows that lie x_bytes and made_bytes apart.
    """
    if rows == 1:
        _multiply_1(block, x, x_bytes, made, made_bytes, pairs)
    elif rows == 2:
        _multiply_2(block, x, x_bytes, made, made_bytes, pairs)
    elif rows == 3:
        _multiply_3(block, x, x_bytes, made, made_bytes, pairs)
    else:
        _multiply_4(block, x, x_bytes, made, made_bytes, pairs)


def _multiplying(rows: int) -> Any:  # noqa: ANN401  a plug of numba's
    """`multiply_block` for so many rows."""

    @intrinsic
    def multiply(typingctx, block, x, x_bytes, made, made_bytes, pairs):
        def build(context, builder, signature, given):
            _build(builder, rows, given)
            return context.get_dummy_value()

        return types.void(*_ADDRESSES), build

    return multiply


_multiply_1, _multiply_2, _multiply_3, _multiply_4 = (
    _multiplying(rows) for rows in range(1, MOST_ROWS + 1)
)


def _build(builder: Any, rows: int, given: Sequence[Any]) -> None:  # noqa: ANN401
    block, x, x_bytes, made, made_bytes, pairs = given
    count = OUTPUTS // _LANES
    sums = [
        [cgutils.alloca_once_value(builder, ir.Constant(_SUMS, None)) for _ in range(count)]
        for _ in range(rows)
    ]
    with cgutils.for_range(builder, pairs) as loop:
        start = builder.add(block, builder.mul(loop.index, ir.Constant(_I64, PAIR_BYTES)))
        words = [_load(builder, start, n * 4 * _LANES, _WORDS) for n in range(count)]
        for row in range(rows):
            at = builder.add(x, builder.mul(x_bytes, ir.Constant(_I64, row)))
            at = builder.add(at, builder.mul(loop.index, ir.Constant(_I64, 8)))
            _add_pair(builder, words, (_splat(builder, at, 0), _splat(builder, at, 4)), sums[row])
    for row in range(rows):
        at = builder.add(made, builder.mul(made_bytes, ir.Constant(_I64, row)))
        for n, held in enumerate(sums[row]):
            _store(builder, builder.load(held), at, n * 4 * _LANES)


def _add_pair(builder: Any, words: Any, values: Any, sums: Any) -> None:  # noqa: ANN401
    """Add the products of a pair of inputs to the sums of a row."""
    fused = cgutils.get_or_insert_function(builder.module, _FUSED, "llvm.fma.v16f32")
    shift, mask = (ir.Constant(_WORDS, [number] * _LANES) for number in (16, 0xFFFF0000))
    for word, held in zip(words, sums, strict=True):
        even = builder.bitcast(builder.shl(word, shift), _SUMS)
        odd = builder.bitcast(builder.and_(word, mask), _SUMS)
        total = builder.call(fused, (even, values[0], builder.load(held)))
        builder.store(builder.call(fused, (odd, values[1], total)), held)


def _pointer(builder: Any, address: Any, offset: int, kind: Any) -> Any:  # noqa: ANN401
    place = builder.add(address, ir.Constant(_I64, offset))
    return builder.inttoptr(place, kind.as_pointer())


def _load(builder: Any, address: Any, offset: int, kind: Any) -> Any:  # noqa: ANN401
    return builder.load(_pointer(builder, address, offset, kind), align=4)


def _store(builder: Any, value: Any, address: Any, offset: int) -> None:  # noqa: ANN401
    builder.store(value, _pointer(builder, address, offset, value.type), align=4)


def _splat(builder: Any, address: Any, offset: int) -> Any:  # noqa: ANN401
    """A value in all lanes."""
    value = _load(builder, address, offset, _FLOAT)
    none = ir.Constant(_SUMS, ir.Undefined)
    first = builder.insert_element(none, value, ir.Constant(_I32, 0))
    return builder.shuffle_vector(first, none, ir.Constant(_WORDS, None))
