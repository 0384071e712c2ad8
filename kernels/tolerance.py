"""How far an implementation may be from its definition, computed in float64 on the same inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch
from torch import Tensor

RELATIVE = {torch.float32: 3e-6, torch.bfloat16: 4.5e-3}
"""Norm of the error over the norm of the exact result, by the dtype of the result.

One rounding to bfloat16 costs up to 2^-9 of each value (0.17 % of the norm on average); a value
rounded twice, as the collapsed streams are, costs more.
"""


def error(found: object, exact: object) -> float:
    """Largest ||found - exact|| / ||exact|| over the tensors of a result; inf where one is not
    finite while the exact result is, or has another shape.
    """
    pairs = list(zip(tensors(found), tensors(exact), strict=True))
    return max((_relative(a, b) for a, b in pairs), default=0.0)


def limit(found: object) -> float:
    """The most that `error` may be for a result of these dtypes."""
    return max((RELATIVE[t.dtype] for t in tensors(found)), default=0.0)


def widened(value: object) -> object:
    """The same arguments in float64: what the exact result is computed from."""
    if isinstance(value, Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, tuple):
        wide = [widened(item) for item in value]
        return type(value)(*wide) if hasattr(value, "_fields") else tuple(wide)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: widened(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return dataclasses.replace(value, **fields)
    return value


def tensors(value: object) -> Iterator[Tensor]:
    """The tensors of a result, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from tensors(item)


def _relative(found: Tensor, exact: Tensor) -> float:
    if found.shape != exact.shape:
        return float("inf")
    if not exact.numel():
        return 0.0
    size = exact.norm().item()
    off = (found.to(exact.dtype) - exact).norm().item()
    if off != off:
        return float("inf")
    return off / size if size else off
