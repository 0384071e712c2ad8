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
from array import array
from functools import cache
from typing import TYPE_CHECKING, Any

import numba
import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kernels.numba_bits import MATH, compiled
from kernels.numba_cache import keeping

if TYPE_CHECKING:
    from collections.abc import Callable


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
def wait_for_team(barrier: int) -> None:
    """Wait until all threads that run a loop have come here; `barrier` as `barrier_address`."""
    if barrier:
        _called(barrier)


@intrinsic
def _called(typingctx: Any, address: Any) -> Any:  # noqa: ANN401
    def build(context: Any, builder: Any, signature: Any, given: Any) -> Any:  # noqa: ANN401
        function = ir.FunctionType(ir.VoidType(), ())
        builder.call(builder.inttoptr(given[0], function.as_pointer()), ())
        return context.get_dummy_value()

    return types.void(types.int64), build


def is_shared() -> bool:
    """Whether loops run in all of torch's threads: it has one, or they can be reached."""
    return torch.get_num_threads() == 1 or _library() is not None


def barrier_address() -> int:
    """What `wait_for_team` calls in loops that are run as worth sharing; 0: they run alone."""
    library = _library() if torch.get_num_threads() > 1 else None
    if library is None:
        return 0
    address = ctypes.cast(library.GOMP_barrier, ctypes.c_void_p).value
    assert address is not None
    return address


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
        library.GOMP_barrier.restype = None
    except (OSError, AttributeError):
        return None
    return library
