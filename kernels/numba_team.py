"""Compiled loops on the threads that torch keeps awake.

torch's OpenMP threads wait for their next work by spinning, so threads beside them get half a
core. `GOMP_parallel` is how compiled programs hand work to them (GNU OpenMP's library); where
torch uses another library, a loop runs in one thread.

A loop is a function of one address, that of its arguments. Whatever thread runs it takes items by
`taken` until none is left. A loop of several stages has a count of taken items for each, and
waits for the other threads between them.
"""

from __future__ import annotations

import ctypes
import os
import platform
from array import array
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numba
import torch
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kernels.numba_bits import MATH, compiled
from kernels.numba_cache import keeping

if TYPE_CHECKING:
    from collections.abc import Callable

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_TURNS = 2000  # 50 us or so
_SLEEP_US = 20


def team_loop(loop: Callable[[int], None]) -> Any:  # noqa: ANN401  numba's CFunc
    """Decorates a loop, which is compiled at once, or found compiled."""
    with keeping() as is_kept:
        return numba.cfunc(
            types.void(types.int64), cache=is_kept, fastmath=MATH, error_model="numpy"
        )(loop)


@intrinsic
def taken(typingctx: Any, arguments: Any) -> Any:  # noqa: ANN401  a plug of numba's
    """The number of an item that no other thread has taken: 0, 1, 2 ..."""

    def build(context: Any, builder: Any, signature: Any, given: Any) -> Any:  # noqa: ANN401
        place = builder.inttoptr(given[0], ir.IntType(64).as_pointer())
        return builder.atomic_rmw("add", place, ir.Constant(ir.IntType(64), 1), "monotonic")

    return types.int64(types.int64), build


@compiled
def meet(place: int, number: int, threads: int, sleep: int) -> None:
    """Wait until all threads of a loop have come here for the `number`th time, counted from 1.

    `place` holds a count that was 0 when the loop began; `sleep` as `Team.sleep`. A thread that
    waits long sleeps: then one that other work keeps from running can have its core.
    """
    here = _arrived(place) + 1
    turns = 0
    while here < number * threads:
        turns += 1
        if turns > _TURNS:
            _slept(sleep)
        else:
            _relaxed()
        here = _counted(place)


@compiled
def team_size(size: int) -> int:
    """How many threads run the loop that asks; `size` as `Team.size`."""
    return _size(size) if size else 1


@intrinsic
def _arrived(typingctx: Any, place: Any) -> Any:  # noqa: ANN401
    def build(context: Any, builder: Any, signature: Any, given: Any) -> Any:  # noqa: ANN401
        count = builder.inttoptr(given[0], _I64.as_pointer())
        return builder.atomic_rmw("add", count, ir.Constant(_I64, 1), "acq_rel")

    return types.int64(types.int64), build


@intrinsic
def _counted(typingctx: Any, place: Any) -> Any:  # noqa: ANN401
    def build(context: Any, builder: Any, signature: Any, given: Any) -> Any:  # noqa: ANN401
        count = builder.inttoptr(given[0], _I64.as_pointer())
        return builder.load_atomic(count, "acquire", 8)

    return types.int64(types.int64), build


@intrinsic
def _relaxed(typingctx: Any) -> Any:  # noqa: ANN401
    """Leave the core to its other half for a moment."""

    def build(context: Any, builder: Any, signature: Any, given: Any) -> Any:  # noqa: ANN401
        if platform.machine() in ("x86_64", "AMD64"):
            kind = ir.FunctionType(ir.VoidType(), ())
            pause = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse2.pause")
            builder.call(pause, ())
        return context.get_dummy_value()

    return types.void(), build


@intrinsic
def _slept(typingctx: Any, sleep: Any) -> Any:  # noqa: ANN401
    def build(context: Any, builder: Any, signature: Any, given: Any) -> Any:  # noqa: ANN401
        function = ir.FunctionType(_I32, (_I32,)).as_pointer()
        builder.call(builder.inttoptr(given[0], function), (ir.Constant(_I32, _SLEEP_US),))
        return context.get_dummy_value()

    return types.void(types.int64), build


@intrinsic
def _size(typingctx: Any, size: Any) -> Any:  # noqa: ANN401
    def build(context: Any, builder: Any, signature: Any, given: Any) -> Any:  # noqa: ANN401
        function = ir.FunctionType(_I32, ()).as_pointer()
        return builder.zext(builder.call(builder.inttoptr(given[0], function), ()), _I64)

    return types.int64(types.int64), build


class Team(NamedTuple):
    """What loops whose threads meet call, as addresses."""

    size: int  # of the function that says how many threads there are; 0: one
    sleep: int  # of the C library's usleep


def team() -> Team:
    """For a loop that is run as worth sharing."""
    library = _library() if torch.get_num_threads() > 1 else None
    size = 0 if library is None else _address_of(library.omp_get_num_threads)
    return Team(size, _address_of(ctypes.CDLL(None).usleep))


def _address_of(function: Any) -> int:  # noqa: ANN401  ctypes' own
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


def is_shared() -> bool:
    """Whether loops run in all of torch's threads: it has one, or they can be reached."""
    return torch.get_num_threads() == 1 or _library() is not None


def run(loop: Any, *arguments: int, is_worth: bool) -> None:  # noqa: ANN401  numba's CFunc
    """Run a loop whose int64 arguments follow the count of taken items.

    In all of torch's threads if that is worth about 10 us, else here.
    """
    held = array("q", (0, *arguments))
    address, _ = held.buffer_info()
    library = _library() if is_worth and torch.get_num_threads() > 1 else None
    if library is None:
        loop.ctypes(address)
    else:
        library.GOMP_parallel(loop.address, address, 0, 0)  # 0: as many threads as torch set


@cache
def _library() -> Any:  # noqa: ANN401  its functions are found by name
    if not hasattr(os, "RTLD_NOLOAD"):
        return None
    try:
        library = ctypes.CDLL("libgomp.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        library.GOMP_parallel.argtypes = (ctypes.c_void_p,) * 2 + (ctypes.c_uint,) * 2
        library.GOMP_parallel.restype = None
        library.omp_get_num_threads.restype = ctypes.c_int
    except (OSError, AttributeError):
        return None
    return library
