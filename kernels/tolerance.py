"""How far an implementation may be from its definition, computed in float64 on the same inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")

RELATIVE = {torch.float32: 3e-6, torch.bfloat16: 4.5e-3, torch.int64: 0.0, torch.uint8: 0.0}
"""Norm of the error over the norm of the exact result, by the dtype of the result.

One rounding to bfloat16 costs up to 2^-9 of each value (0.17 % of the norm on average); a value
rounded twice, as the collapsed streams are, costs more. Integers must be equal.
"""
AFTER_ROUNDING = 4.5e-3
"""Where packed values are compared: a last bit before may move a few of them by a whole step."""


def error(found: object, exact: object) -> float:
    """Largest ||found - exact|| / ||exact|| over the tensors of a result; inf where one is not
    finite while the exact result is, or has another shape.
    """
    pairs = list(zip(tensors(found), tensors(exact), strict=True))
    return max((_relative(a, b) for a, b in pairs), default=0.0)


def limit(found: object) -> float:
    """The most that `error` may be for a result of these dtypes."""
    return max((RELATIVE[t.dtype] for t in tensors(found)), default=0.0)


def widened(value: T) -> T:
    """The same arguments in float64: what the exact result is computed from. Bytes stay bytes."""
    return _mapped(value, lambda t: t.double() if t.is_floating_point() and t.itemsize > 1 else t)


def first_rows(value: T, rows: int, count: int) -> T:
    """The same with the first `count` of every tensor that has `rows` rows."""
    return _mapped(value, lambda t: t[:count] if t.shape[:1] == (rows,) else t)


def _mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:  # noqa: ANN401
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple):
        items = [_mapped(item, change) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {
            f.name: _mapped(getattr(value, f.name), change) for f in dataclasses.fields(value)
        }
        return dataclasses.replace(value, **fields)
    return value


def tensors(value: object) -> Iterator[Tensor]:
    """The tensors of a result, in order."""
    if isinstance(value, Tensor):
        yield value
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from tensors(getattr(value, field.name))
    elif isinstance(value, tuple):
        for item in value:
            yield from tensors(item)


def _relative(found: Tensor, exact: Tensor) -> float:
    if found.shape != exact.shape:
        return float("inf")
    if not exact.numel():
        return 0.0
    if not exact.is_floating_point():
        return 0.0 if torch.equal(found, exact) else float("inf")
    size = exact.norm().item()
    off = (found.to(exact.dtype) - exact).norm().item()
    if off != off:
        return float("inf")
    return off / size if size else off
