"""Cases of a mixture of experts. See `kernels.cases`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from kernels.case import Arguments, Case, normal
from kernels.cases_matmul import AFTER_INNER_ROUNDING, random_fp8, random_mxfp4
from kernels.grouped_matmul.reference import Experts
from kernels.matmul.weights import Fp8Weight, Mxfp4Weight, Weight
from kernels.registry import FP8_EXPERTS, MXFP4_EXPERTS
from kernels.routing import reference as routing
from kernels.routing.reference import Router

FEW_VALUES = 256  # of a row
TOO_CLOSE = 1e-4  # scores nearer than this, unless equal, may be ordered either way


def route_case(
    experts: int, width: int, top: int, *, by_softmax: bool = False, is_narrow: bool = False
) -> Case:
    """Rows whose choice float32 can decide; two experts are equal, so that ties happen.

    `is_narrow`: weights are of the dtype of the rows, as a release has them, and some rows are
    padding; else they are float32.
    """

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        weight = torch.randn(experts, width, device=device) / width**0.5
        bias = torch.rand(experts, device=device) / 2
        weight[1], bias[1] = weight[0], bias[0]
        weight = weight.to(dtype) if is_narrow else weight
        if by_softmax:
            bias.zero_()  # as its models have it
        router = Router(weight=weight, bias=bias, experts_per_token=top, normalise=True, scale=2.5)
        drawn = normal((2 * rows + 64, width), dtype, device)
        x = drawn[_decided(drawn, router)][:rows]
        return (x, router, torch.rand(rows, device=device) < 0.9) if is_narrow else (x, router)

    return Case(
        op="route_by_softmax" if by_softmax else "route",
        name=f"{top} of {experts} at width {width}" + (", narrow" if is_narrow else ""),
        make=make,
        bytes_per_row=lambda size: width * size + 12 * top,
        fixed_bytes=experts * ((2 if is_narrow else 4) * width + 4),
        timed_rows=(1, 32, 128, 2048, 8192),
    )


def _decided(x: Tensor, router: Router) -> Tensor:
    wide = replace(
        router,
        weight=router.weight.double(),
        bias=router.bias.double(),
        experts_per_token=router.bias.numel(),
        normalise=False,
        scale=1.0,
    )
    order, affinity = routing.route(x.double(), wide)
    score = affinity + wide.bias[order]
    gaps = (score[:, :-1] - score[:, 1:])[:, : router.experts_per_token]
    return ((gaps > TOO_CLOSE) | (gaps == 0)).all(-1)


def experts_case(experts: int, width: int, inner: int, top: int) -> Case:
    """Every other row chooses the first experts, so that some stay idle and some are busy."""

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        held = Experts(
            gate_up=_drawn((experts, 2 * inner, width), dtype, device),
            down=_drawn((experts, width, inner), dtype, device),
            limit=7.0,
        )
        chosen = torch.rand(rows, experts, device=device).topk(top).indices
        chosen[::2] = torch.arange(top, device=device)
        weights = torch.rand(rows, top, device=device)
        x, shared = (normal((rows, width), dtype, device) for _ in range(2))
        return x, held, chosen, weights, shared

    return Case(
        op="run_experts",
        name=f"{top} of {experts}, {width} to {inner}",
        make=make,
        bytes_per_row=lambda size: 3 * width * size + 12 * top,
        waits=True,
        bytes_shared=lambda rows, size: (
            3 * width * inner * size * _busy_experts(experts, top, rows)
        ),
    )


def packed_experts_case(
    experts: int, width: int, inner: int, top: int, input_group: int | None
) -> Case:
    """The same with mxfp4 experts; each third row chooses one expert less, the last none at all."""

    def draw(shape: tuple[int, ...], device: torch.device) -> Mxfp4Weight:
        return random_mxfp4(shape, input_group, device)

    case = _packed_case(experts, width, inner, top, draw)
    return replace(
        case,
        name=f"{top} of {experts} mxfp4, {width} to {inner}, {_inputs(input_group)}",
        bytes_shared=lambda rows, size: (
            3 * width * inner * 17 // 32 * _drawn_experts(experts, top, rows)
        ),
        **_limits(width, input_group),
        weights=MXFP4_EXPERTS,
    )


def few_experts_case(
    experts: int, used: int, width: int, inner: int, top: int, input_group: int | None
) -> Case:
    """The same where all rows choose among `used` experts, spread among the others: what a step
    of some sequences does whose rows are alike. Each expert has several tiles of rows.
    """
    case = packed_experts_case(experts, width, inner, top, input_group)
    draw = packed_experts_case(used, width, inner, top, input_group)
    assert experts % used == 0

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        x, held, chosen, weights, shared = case.make(rows, dtype, device)
        assert isinstance(chosen, Tensor)
        fewer = torch.rand(rows, used, device=device).topk(top).indices * (experts // used)
        return x, held, torch.where(chosen < 0, chosen, fewer), weights, shared

    return replace(
        case,
        name=f"{case.name}, {used} in use",
        make=make,
        bytes_shared=draw.bytes_shared,
        timed_rows=(32, 128),
    )


def fp8_experts_case(
    experts: int, width: int, inner: int, top: int, side: int, input_group: int | None
) -> Case:
    """The same with experts of fp8 in square tiles."""

    def draw(shape: tuple[int, ...], device: torch.device) -> Fp8Weight:
        return random_fp8(shape, (side, side), input_group, device)

    case = _packed_case(experts, width, inner, top, draw)
    return replace(
        case,
        name=f"{top} of {experts} fp8 by {side}, {width} to {inner}, {_inputs(input_group)}",
        bytes_shared=lambda rows, size: 3 * width * inner * _drawn_experts(experts, top, rows),
        number="bf16" if input_group is None else "fp8",
        **_limits(width, input_group),
        weights=FP8_EXPERTS,
    )


def _limits(width: int, input_group: int | None) -> dict[str, float]:
    """Of rows with few values errors do not average out: of a thousand single rows by the
    definition in bfloat16 the worst was off by 6e-3, with inner rounding by 8e-2.
    """
    is_few = width <= FEW_VALUES
    if input_group is not None:
        return {"limit": 3 * AFTER_INNER_ROUNDING if is_few else AFTER_INNER_ROUNDING}
    return {"bfloat16_limit": 9e-3} if is_few else {}


def _inputs(group: int | None) -> str:
    return "inputs " + ("as they are" if group is None else f"in groups of {group}")


def _packed_case(
    experts: int, width: int, inner: int, top: int,
    draw: Callable[[tuple[int, ...], torch.device], Weight],
) -> Case:  # fmt: skip
    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        held = Experts(
            gate_up=draw((experts, 2 * inner, width), device),
            down=draw((experts, width, inner), device),
            limit=7.0,
        )
        chosen = torch.rand(rows, experts, device=device).topk(top).indices
        chosen[1::3, top // 2] = -1
        if rows > 1:
            chosen[-1] = -1
        weights = torch.rand(rows, top, device=device)
        x, shared = (normal((rows, width), dtype, device) for _ in range(2))
        return x, held, chosen, weights, shared

    return Case(
        op="run_experts",
        name=f"{top} of {experts}",
        make=make,
        bytes_per_row=lambda size: 3 * width * size + 12 * top,
        waits=True,
        flops=lambda rows: 6 * rows * top * width * inner,
    )


def _drawn_experts(experts: int, top: int, rows: int) -> int:
    """How many experts rows are expected to choose that draw alike, rounded down."""
    return int(experts * (1 - (1 - top / experts) ** rows))


def _busy_experts(experts: int, top: int, rows: int) -> int:
    """How many experts the rows of a case are expected to choose, rounded down."""
    idle = (experts - top) * (1 - top / experts) ** (rows // 2)
    return int(experts - idle)


def _drawn(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """In the dtype at once: the float32 of a release's experts would not fit beside them."""
    return torch.randn(shape, dtype=dtype, device=device) / shape[-1] ** 0.5
