"""Scripts whose Triton kernels are interpreted, each in a process of its own."""

import os
import subprocess
import sys

import pytest

INTERPRETED = """
import numpy as np
import torch
from triton import language
from triton.runtime import interpreter

builder = interpreter.InterpreterBuilder
multiply, cast = builder.create_dot, builder.cast_impl


# The interpreter keeps bfloat16 as its bits in 16 bit integers: it multiplies those in a
# product, and cuts the rest of a float32 off where devices round.
def widened(handle):
    if handle.dtype.scalar is not language.bfloat16:
        return handle
    bits = handle.data.astype(np.uint32) << 16
    return interpreter.TensorHandle(bits.view(np.float32), language.float32)


def rounded(self, handle, to):
    pair = handle.dtype.scalar, to.scalar
    if pair == (language.bfloat16, language.float32):
        return widened(handle)
    if pair != (language.float32, language.bfloat16):
        return cast(self, handle, to)
    bits = handle.data.view(np.uint32)
    near = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    kept = np.where(np.isnan(handle.data), 0x7FC0, near).astype(np.uint16)
    return interpreter.TensorHandle(kept, to.scalar)


builder.cast_impl = rounded


# A library adds in an order that the sizes decide, and the processor; a device in one.
def in_order(self, a, b, total, *rest):
    a, b = widened(a), widened(b)
    if a.data.dtype != np.float32 or a.data.ndim != 2:
        return multiply(self, a, b, total, *rest)
    added = np.zeros(total.data.shape, np.float32)
    for k in range(a.data.shape[1]):
        added += a.data[:, k, None] * b.data[None, k, :]
    return interpreter.TensorHandle(added + total.data, total.dtype.scalar)


builder.create_dot = in_order
torch.set_num_threads(1)
torch.manual_seed(0)
"""


def interpreted(code):
    """What a script prints; a printed skip where Triton is not installed."""
    pytest.importorskip("triton", reason="triton is not installed")
    return run(INTERPRETED + code, TRITON_INTERPRET="1")


def run(code, **variables):
    """What a script prints, run with these variables, and compiled unless one says otherwise."""
    environ = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env={**environ, **variables}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
