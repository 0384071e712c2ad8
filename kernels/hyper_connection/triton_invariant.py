"""Between two sublayers in one way for any number of rows, whose bits do not depend on it."""

from __future__ import annotations

from torch import Tensor

from kernels.hyper_connection.reference import Between, Mixes, Mixing
from kernels.hyper_connection.triton_cuda import between_wide
from kernels.hyper_connection.triton_cuda_narrow import between_apart, suits


def between_sublayers(
    y: Tensor, streams: Tensor, mixed: Mixes, weight: Tensor, eps: float, mixing: Mixing
) -> Between:
    """See kernels.hyper_connection.reference."""
    _, n, width = streams.shape
    between = between_apart if suits(n, width, streams.dtype) else between_wide
    return between(y, streams, mixed, weight, eps, mixing)
