"""Products that several kernels make."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def float32_product(x, weight, total, NARROW: tl.constexpr):
    """total + x . weight with float32 weights, as exact as float32 is.

    NARROW: x is bfloat16, and three bfloat16 hold a float32, so matrix instructions do it.
    """
    if NARROW:
        high = weight.to(tl.bfloat16)
        rest = weight - high.to(tl.float32)
        middle = rest.to(tl.bfloat16)
        low = (rest - middle.to(tl.float32)).to(tl.bfloat16)
        total = tl.dot(x, low, total)
        total = tl.dot(x, middle, total)
        total = tl.dot(x, high, total)
    else:
        total = tl.dot(x, weight, total, input_precision="ieee")
    return total
