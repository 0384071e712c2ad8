"""Mixtures of experts of fp8 tiles through the interpreter: every tile and rounding, idle and
crowded experts, rows that choose none, and memory that nobody wrote.
"""

from tests.fakes.interpreter import interpreted

SET_UP = """
import torch

from kernels.cases_matmul import random_fp8
from kernels.grouped_matmul import reference, triton_fp8, triton_invariant
from kernels.grouped_matmul.reference import Experts
from kernels import tolerance

empty = torch.empty
POISON = {torch.int32: 2147480000}


def poisoned(*shape, **kind):  # what a kernel reads without having written it would show
    made = empty(*shape, **kind)
    return made.fill_(POISON.get(made.dtype, torch.nan if made.is_floating_point() else 0xFF))


torch.empty = poisoned
WIDTH, INNER, COUNT, TOP = 256, 128, 3, 2
CPU = torch.device("cpu")


def made(side, group):
    return Experts(
        gate_up=random_fp8((COUNT, 2 * INNER, WIDTH), (side, side), group, CPU),
        down=random_fp8((COUNT, WIDTH, INNER), (side, side), group, CPU),
        limit=7.0,
    )


def drawn(rows):
    x, shared = (torch.randn(rows, WIDTH).bfloat16() for _ in range(2))
    return x, torch.randint(0, COUNT, (rows, TOP)), torch.rand(rows, TOP), shared


def difference(found, exact):  # as DeepGEMM measures it
    found, exact = found.double(), exact.double()
    return 1 - 2 * (found * exact).sum() / (found.square().sum() + exact.square().sum())


def exactly(*arguments):
    return reference.run_experts(*tolerance.widened(arguments))
"""

TILES = (
    SET_UP
    + """
for side, group, most in ((32, None, 5e-6), (128, None, 5e-6), (32, 32, 1e-3), (128, 128, 1e-3)):
    experts = made(side, group)
    for rows in (1, 7, 50):  # tiles of three sizes
        x, chosen, weights, shared = drawn(rows)
        chosen[chosen == 1] = 2  # nobody's
        found = triton_fp8.run_experts(x, experts, chosen, weights, shared)
        off = difference(found, exactly(x, experts, chosen, weights, shared))
        assert off <= most, (side, group, rows, off)
"""
)

ROUNDED = (
    SET_UP
    + """
from dataclasses import replace

from kernels.quantize.reference import round_groups

one_of_each = torch.eye(WIDTH, INNER).expand(COUNT, -1, -1).to(torch.float8_e4m3fn).contiguous()
for side in (32, 128):
    experts = made(side, side)
    scales = torch.full_like(experts.down.scales, 127)
    experts = replace(experts, down=replace(experts.down, values=one_of_each, scales=scales))
    for rows in (1, 50):
        x, chosen, weights, shared = drawn(rows)
        chosen[:, 1] = -1
        found = triton_fp8.run_experts(x, experts, chosen, weights, shared.zero_())[:, :INNER]
        assert torch.equal(round_groups(found, side), found)
        assert found.unique().numel() > 20
"""
)

NONE = (
    SET_UP
    + """
for side in (32, 128):
    experts = made(side, side)
    x, chosen, weights, shared = drawn(6)
    x[1], x[2, 5], chosen[1:3] = torch.nan, torch.inf, -1  # rows of a padded batch hold anything
    chosen[4, 0] = -1
    found = triton_fp8.run_experts(x, experts, chosen, weights, shared)
    assert torch.equal(found[1:3], shared[1:3])
    assert found.isfinite().all()
    chosen[:] = -1
    assert torch.equal(triton_fp8.run_experts(x, experts, chosen, weights, shared), shared)
    none = triton_fp8.run_experts(x[:0], experts, chosen[:0], weights[:0], shared[:0])
    assert none.shape == (0, WIDTH)
"""
)

ALONE = (
    SET_UP
    + """
from kernels.cases_matmul import random_mxfp4
from kernels.grouped_matmul.triton_tiles import Tiles
from kernels.quantize.reference import FormatError

mxfp4 = Experts(
    gate_up=random_mxfp4((COUNT, 2 * INNER, WIDTH), 32, CPU),
    down=random_mxfp4((COUNT, WIDTH, INNER), 32, CPU),
    limit=7.0,
)
plain = Experts(
    gate_up=torch.randn(COUNT, 2 * INNER, WIDTH).bfloat16() / 16,
    down=torch.randn(COUNT, WIDTH, INNER).bfloat16() / 11,
    limit=7.0,
)
sizes, tiles_of = set(), Tiles.of
Tiles.of = lambda chosen, count, size: sizes.add(size) or tiles_of(chosen, count, size)
for experts in (made(128, 128), made(32, 32), mxfp4, plain):
    sizes.clear()
    x, chosen, weights, shared = drawn(50)
    among = triton_invariant.run_experts(x, experts, chosen, weights, shared)
    for some in (slice(0, 1), slice(20, 23), slice(30, 50)):
        alone = triton_invariant.run_experts(
            x[some], experts, chosen[some], weights[some], shared[some]
        )
        assert torch.equal(alone, among[some])
    assert difference(among, exactly(x, experts, chosen, weights, shared)) <= 1e-3
    assert len(sizes) == 1, "cut by the number of rows"
    none = triton_invariant.run_experts(x[:0], experts, chosen[:0], weights[:0], shared[:0])
    assert none.shape == (0, WIDTH)
mixed = Experts(gate_up=mxfp4.gate_up, down=plain.down, limit=7.0)
try:
    triton_invariant.run_experts(x, mixed, chosen, weights, shared)
except FormatError as error:
    print(error)
"""
)


def test_products_are_those_of_the_definition_whatever_the_tile_and_the_rounding():
    interpreted(TILES)


def test_what_lies_between_the_products_is_rounded_where_the_weights_say_so():
    interpreted(ROUNDED)


def test_rows_that_choose_no_expert_get_what_all_rows_get_and_nothing_else():
    interpreted(NONE)


def test_rows_alone_come_out_as_among_others_however_their_experts_are_packed():
    assert "leaves a row alone" in interpreted(ALONE)
