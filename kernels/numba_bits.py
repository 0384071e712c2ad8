"""bfloat16 inside loops that numba compiles for a CPU: values travel as their 16 bits.

numba has no bfloat16. These functions are inlined by the compiler, and loops over them become
vector instructions, the exponential included, which the compiler's library computes one by one.
Loops take the addresses of tensors: to wrap each in an array costs more than a row's work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kernels.numba_cache import keeping

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Bits = NDArray[np.uint16]
    Floats = NDArray[np.float32]
    Indices = NDArray[np.int64]

_I16, _I32, _FLOAT = ir.IntType(16), ir.IntType(32), ir.FloatType()
MATH = {"reassoc", "contract", "arcp", "nsz"}  # infinities and NaN keep their meaning


def compiled(function: Callable[..., Any]) -> Any:  # noqa: ANN401  numba's dispatcher
    """Decorates a function that is compiled at its first call, and found compiled the next time."""
    with keeping() as is_kept:
        return numba.njit(fastmath=MATH, error_model="numpy", cache=is_kept)(function)


@intrinsic
def _pointer(typingctx: Any, address: Any) -> Any:  # noqa: ANN401  a plug of numba's
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), build


@compiled
def bits_at(address: int, shape: tuple[int, ...]) -> Bits:
    """The bfloat16 values of a contiguous tensor at `Tensor.data_ptr()`, as their bits."""
    return numba.carray(_pointer(address), shape, np.uint16)


@compiled
def pairs_at(address: int, shape: tuple[int, ...]) -> NDArray[np.uint32]:
    """As `bits_at`, two neighbours in a word, the first in its low half."""
    return numba.carray(_pointer(address), shape, np.uint32)


@compiled
def floats_at(address: int, shape: tuple[int, ...]) -> Floats:
    """The float32 values of a contiguous tensor at `Tensor.data_ptr()`."""
    return numba.carray(_pointer(address), shape, np.float32)


@compiled
def doubles_at(address: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """The float64 values of a contiguous tensor at `Tensor.data_ptr()`."""
    return numba.carray(_pointer(address), shape, np.float64)


@compiled
def indices_at(address: int, shape: tuple[int, ...]) -> Indices:
    """The int64 values of a contiguous tensor at `Tensor.data_ptr()`."""
    return numba.carray(_pointer(address), shape, np.int64)


@intrinsic
def widen(typingctx: Any, word: Any) -> Any:  # noqa: ANN401
    """Float32 of the bits of a bfloat16."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        word = builder.zext(arguments[0], _I32)
        return builder.bitcast(builder.shl(word, ir.Constant(_I32, 16)), _FLOAT)

    return types.float32(types.uint16), build


@intrinsic
def narrow(typingctx: Any, value: Any) -> Any:  # noqa: ANN401
    """Bits of the bfloat16 that is nearest to a float32; the even one of two."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        word = builder.bitcast(arguments[0], _I32)
        shift = ir.Constant(_I32, 16)
        odd = builder.and_(builder.lshr(word, shift), ir.Constant(_I32, 1))
        near = builder.add(word, builder.add(odd, ir.Constant(_I32, 0x7FFF)))
        is_number = builder.fcmp_ordered("ord", arguments[0], arguments[0])
        near = builder.select(is_number, near, ir.Constant(_I32, 0x7FC00000))
        return builder.trunc(builder.lshr(near, shift), _I16)

    return types.uint16(types.float32), build


@intrinsic
def number_of(typingctx: Any, word: Any) -> Any:  # noqa: ANN401
    """The float32 of its bits."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        return builder.bitcast(arguments[0], _FLOAT)

    return types.float32(types.int32), build


@intrinsic
def low(typingctx: Any, pair: Any) -> Any:  # noqa: ANN401
    """Float32 of the first of two neighbours."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        return builder.bitcast(builder.shl(arguments[0], ir.Constant(_I32, 16)), _FLOAT)

    return types.float32(types.uint32), build


@intrinsic
def high(typingctx: Any, pair: Any) -> Any:  # noqa: ANN401
    """Float32 of the second of two neighbours."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        return builder.bitcast(builder.and_(arguments[0], ir.Constant(_I32, 0xFFFF0000)), _FLOAT)

    return types.float32(types.uint32), build


@intrinsic
def joined(typingctx: Any, first: Any, second: Any) -> Any:  # noqa: ANN401
    """Two neighbours of the bits of bfloat16."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        first, second = (builder.zext(one, _I32) for one in arguments)
        return builder.or_(first, builder.shl(second, ir.Constant(_I32, 16)))

    return types.uint32(types.uint16, types.uint16), build


@intrinsic
def _two_to(typingctx: Any, exponent: Any) -> Any:  # noqa: ANN401
    """2 ** exponent for a whole float32 from -126 to 127, by its bits."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        whole = builder.add(builder.fptosi(arguments[0], _I32), ir.Constant(_I32, 127))
        return builder.bitcast(builder.shl(whole, ir.Constant(_I32, 23)), _FLOAT)

    return types.float32(types.float32), build


_LEAST, _MOST = np.float32(-87.0), np.float32(88.0)
_LOG2_E = np.float32(1.4426950408889634)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_HALF, _ONE = np.float32(0.5), np.float32(1.0)
_TERMS = tuple(np.float32(x) for x in (1 / 720, 1 / 120, 1 / 24, 1 / 6))


@compiled
def exponential(x: float) -> float:
    """e ** x in float32 to 5e-7 of it, from e ** -87 to e ** 88; NaN stays NaN.

    x = n ln 2 + r with ln 2 in two parts (Cody and Waite), and Taylor's series of r.
    """
    held = min(max(x, _LEAST), _MOST) if x == x else x  # NaN is not itself
    n = np.floor(held * _LOG2_E + _HALF)
    r = held - n * _LN2_HIGH - n * _LN2_LOW
    series = ((_TERMS[0] * r + _TERMS[1]) * r + _TERMS[2]) * r + _TERMS[3]
    return (((series * r + _HALF) * r + _ONE) * r + _ONE) * _two_to(n)
