"""Products of a few rows with weights in blocks, in vector instructions.

A block is [pairs of inputs, OUTPUTS, 2] bfloat16 values, so that a sum of each output is kept in
a register while the block streams by. numba has no vectors, and LLVM finds none in such a loop.
Each row is summed in the same order whatever the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kernels.fused_linear.blocks import OUTPUTS
from kernels.numba_bits import compiled

PAIR_BYTES = 4 * OUTPUTS  # of a pair of inputs of all outputs
MOST_ROWS = 4  # whose sums fit into the registers beside what they are made of
_LANES = 16
_I32, _I64, _FLOAT = ir.IntType(32), ir.IntType(64), ir.FloatType()
_WORDS, _SUMS = ir.VectorType(_I32, _LANES), ir.VectorType(_FLOAT, _LANES)
_FUSED = ir.FunctionType(_SUMS, (_SUMS,) * 3)


@compiled
def multiply_two(rows, block, x, made, between, steps, pairs) -> None:
    """Products of float32 rows with two blocks at addresses, OUTPUTS float32 a row of each.

    Two streams are faster than one. The second lies `between` bytes behind the first, as do its
    rows and its products: `between` is of the blocks, of x and of made. Rows of x and of made lie
    `steps` bytes apart. No more than MOST_ROWS rows; `pairs` of inputs each.
    """
    if rows == 1:
        _multiply_1(block, x, made, *between, *steps, pairs)
    elif rows == 2:
        _multiply_2(block, x, made, *between, *steps, pairs)
    else:
        for number in range(2):
            places = (
                block + number * between[0],
                x + number * between[1],
                made + number * between[2],
            )
            if rows == 3:
                _multiply_3(*places, 0, 0, 0, *steps, pairs)
            else:
                _multiply_4(*places, 0, 0, 0, *steps, pairs)


@compiled
def multiply_four(rows, block, x, made, near, far, steps, pairs) -> None:
    """As `multiply_two`, of two pairs of blocks: `near` within a pair, `far` between them."""
    if rows == 1:
        _multiply_1_by_4(block, x, made, *near, *far, *steps, pairs)
    else:
        multiply_two(rows, block, x, made, near, steps, pairs)
        multiply_two(rows, block + far[0], x + far[1], made + far[2], near, steps, pairs)


def _multiplying(rows: int, streams: int) -> Any:  # noqa: ANN401  a plug of numba's
    """For so many rows and blocks, whose sums must fit into the registers."""

    @intrinsic
    def multiply(
        typingctx, block, x, made, block_beyond, x_beyond, made_beyond, x_step, made_step, pairs
    ):
        def build(context, builder, signature, given):
            places, between, steps = given[:3], given[3:6], given[6:8]
            each = [_beyond(builder, places, between, number) for number in range(streams)]
            _build(builder, rows, each, steps, given[8])
            return context.get_dummy_value()

        return types.void(*(types.int64,) * 9), build

    return multiply


@intrinsic
def _multiply_1_by_4(
    typingctx, block, x, made, block_near, x_near, made_near, block_far, x_far, made_far,
    x_step, made_step, pairs
):  # fmt: skip
    def build(context, builder, signature, given):
        near, far, steps = given[3:6], given[6:9], given[9:11]
        firsts = [_beyond(builder, given[:3], far, number) for number in range(2)]
        each = [_beyond(builder, first, near, number) for first in firsts for number in range(2)]
        _build(builder, 1, each, steps, given[11])
        return context.get_dummy_value()

    return types.void(*(types.int64,) * 12), build


def _beyond(builder, places, steps, times):
    """Addresses of block, rows and products, so many steps further."""
    count = ir.Constant(_I64, times)
    return [
        builder.add(place, builder.mul(step, count))
        for place, step in zip(places, steps, strict=True)
    ]


def _build(builder, rows, each, steps, pairs):
    streams = [_Stream.of(builder, places, steps, rows) for places in each]
    with cgutils.for_range(builder, pairs) as loop:
        for stream in streams:
            stream.add(builder, loop.index)
    for stream in streams:
        stream.store(builder)


_multiply_1, _multiply_2 = _multiplying(1, 2), _multiplying(2, 2)
_multiply_3, _multiply_4 = _multiplying(3, 1), _multiplying(4, 1)


@dataclass(frozen=True)
class _Stream:
    """One block while code for it is made: where it lies, and its sums."""

    block: Any
    rows: tuple[Any, ...]  # addresses in x
    made: tuple[Any, ...]  # of their products
    sums: tuple[tuple[Any, ...], ...]  # of each row

    @classmethod
    def of(cls, builder, places, steps, rows) -> _Stream:
        """The block at an address, for rows at addresses."""
        block, *firsts = places
        each = [_beyond(builder, firsts, steps, row) for row in range(rows)]
        x_rows, made_rows = (tuple(side) for side in zip(*each, strict=True))
        sums = tuple(
            tuple(
                cgutils.alloca_once_value(builder, ir.Constant(_SUMS, None))
                for _ in range(OUTPUTS // _LANES)
            )
            for _ in range(rows)
        )
        return cls(block, x_rows, made_rows, sums)

    def add(self, builder, pair):
        """Add the products of a pair of inputs."""
        start = builder.add(self.block, builder.mul(pair, ir.Constant(_I64, PAIR_BYTES)))
        words = [_load(builder, start, n * 4 * _LANES, _WORDS) for n in range(OUTPUTS // _LANES)]
        for row, sums in zip(self.rows, self.sums, strict=True):
            at = builder.add(row, builder.mul(pair, ir.Constant(_I64, 8)))
            _add_pair(builder, words, (_splat(builder, at, 0), _splat(builder, at, 4)), sums)

    def store(self, builder):
        """Write the sums."""
        for made, sums in zip(self.made, self.sums, strict=True):
            for n, held in enumerate(sums):
                _store(builder, builder.load(held), made, n * 4 * _LANES)


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
