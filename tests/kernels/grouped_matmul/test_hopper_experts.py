"""What lies around the product of mxfp4 experts on Hopper, through the interpreter.

The product itself runs on no other device (`python -m kernels.check`): torch stands in for it.
"""

from tests.fakes.interpreter import interpreted

SET_UP = """
import torch

from kernels.cases_matmul import random_mxfp4
from kernels.grouped_matmul import triton_tiles
from kernels.grouped_matmul.reference import Experts
from kernels.grouped_matmul.triton_spread import spread
from kernels.quantize.reference import round_groups

WIDTH, INNER, COUNT, TOP = 512, 256, 5, 3
CPU = torch.device("cpu")


def ordered(values):  # bits 6543210 of a place are the bits 1043652 of its input
    place = torch.arange(values.shape[-1])
    bit = [place >> n & 1 for n in range(7)]
    source = place // 128 * 128
    for at, of in zip((6, 5, 4, 3, 2, 1, 0), (1, 0, 4, 3, 6, 5, 2), strict=True):
        source = source + (bit[at] << of)
    return values[..., source]


def drawn(rows):
    x, shared = (torch.randn(rows, WIDTH).bfloat16() for _ in range(2))
    chosen = torch.rand(rows, COUNT).topk(TOP).indices
    chosen[chosen == 1] = 2  # nobody's
    chosen[::4, 1] = -1
    chosen[1] = -1
    return x, chosen, torch.rand(rows, TOP), shared
"""

SPREAD = (
    SET_UP
    + """
for group, few in ((None, 2048), (32, 2048), (None, 0), (32, 0)):
    triton_tiles.FEW_PAIRS = few  # in one launch, or in three
    x, chosen, weights, _ = drawn(41)
    tiles, rows, shares = spread(x, chosen, weights, COUNT, size=16, group=group)
    some = int((chosen >= 0).sum())
    pair = tiles.order[:some].long()
    assert torch.equal(chosen.flatten()[pair], chosen[chosen >= 0].sort().values)
    plain = x if group is None else round_groups(x, group)
    assert torch.equal(rows[:some], ordered(plain[pair // TOP]))
    assert torch.equal(shares[:some], weights.flatten()[pair])
"""
)

AROUND = (
    SET_UP
    + """
from kernels import tolerance
from kernels.grouped_matmul import reference, triton_hopper
from kernels.quantize.reference import dequantise_mxfp4


class Product:  # what the kernel's description says
    def __getitem__(self, grid):
        return self.run

    def run(self, many, few, weight, scales, shares, order, tiles, expert, start, end, out, limit,
            *, WIDTH, OUTPUTS, IS_UP, GROUP, **how):
        x = many.base.double()
        held = dequantise_mxfp4(weight.base.view(torch.uint8), scales.view(-1, WIDTH // 32))
        held = ordered(held.double()).view(-1, (1 + IS_UP) * OUTPUTS, WIDTH)
        for t in range(int(tiles[0])):
            mine = slice(int(start[t]), min(int(end[t]), int(start[t]) + 128))
            y = x[mine] @ held[expert[t]].T
            if IS_UP:
                gate, up = y[:, :OUTPUTS].clamp(max=limit), y[:, OUTPUTS:].clamp(-limit, limit)
                y = torch.nn.functional.silu(gate) * up * shares[mine, None]
                y = round_groups(y.bfloat16(), GROUP) if GROUP else y
                out[mine] = ordered(y.bfloat16())
            else:
                out[order[mine].long()] = y.bfloat16()


triton_hopper.experts_kernel = Product()
triton_hopper.processors = lambda device: 2
for group in (None, 32):
    experts = Experts(
        gate_up=random_mxfp4((COUNT, 2 * INNER, WIDTH), group, CPU),
        down=random_mxfp4((COUNT, WIDTH, INNER), group, CPU),
        limit=7.0,
    )
    for rows in (2, 300):
        x, chosen, weights, shared = drawn(rows)
        assert triton_hopper.suits(experts, x)
        found = triton_hopper.run_experts(x, experts, chosen, weights, shared)
        exact = reference.run_experts(
            *tolerance.widened((x, experts, chosen, weights, shared))
        )
        off = (found.double() - exact).norm() / exact.norm()
        assert off < (3e-2 if group else 5e-3), (group, rows, off)
        assert torch.equal(found[1], shared[1])
"""
)


def test_rows_lie_once_for_each_expert_in_the_order_that_weights_are_unpacked_in():
    interpreted(SPREAD)


def test_experts_are_those_of_the_definition_where_the_product_is_what_it_says():
    interpreted(AROUND)
