"""What lies around the e4m3 product of mxfp4 experts on Hopper, through the interpreter.

The product itself runs on no other device (`python -m kernels.tune --check`): torch stands in.
"""

from tests.fakes.interpreter import interpreted

AROUND = """
import torch

from kernels import tolerance
from kernels.cases_matmul import random_mxfp4
from kernels.grouped_matmul import reference, triton_coded, triton_hopper
from kernels.grouped_matmul.reference import Experts
from kernels.quantize.reference import dequantise_mxfp4, quantise_groups
from kernels.tuning import forced

WIDTH, INNER, COUNT, TOP = 1024, 1024, 40, 3
CPU = torch.device("cpu")


def evens_first(codes):
    return codes.unflatten(-1, (-1, 16, 2)).transpose(-1, -2).flatten(-3)


class Product:  # what the kernel's description says
    ran = 0

    def __getitem__(self, grid):
        return self.run

    def run(self, codes, shares, packed, scales, weights, order, tiles, expert, start, end, out,
            out_shares, per_row, inputs, outputs, blocks, limit, *, EARLY, IS_UP, STAGES, GROUPS,
            MOST, num_warps, maxnreg):
        Product.ran += 1
        x = codes.double() * shares.double().repeat_interleave(32, 1)
        held = dequantise_mxfp4(packed, scales.view(torch.uint8)).double()
        held = evens_first(held)
        assert blocks == outputs // (64 if IS_UP else 128)
        for t in range(int(tiles[0])):
            mine = slice(int(start[t]), min(int(end[t]), int(start[t]) + MOST))
            pair = order[mine].long()
            rows = x[pair // per_row] if IS_UP else x[mine]
            y = rows @ held[expert[t]].T
            if not IS_UP:
                out[pair] = y.bfloat16()
                continue
            gate, up = y[:, :outputs].clamp(max=limit), y[:, outputs:].clamp(-limit, limit)
            y = torch.nn.functional.silu(gate) * up * weights.flatten()[pair, None]
            values, powers = quantise_groups(y.bfloat16(), 32)
            out[mine] = evens_first(values.view(torch.int8))
            out_shares[mine] = torch.exp2(powers.view(torch.uint8).float() - 127)


triton_coded.few_experts_kernel = Product()
triton_coded.processors = lambda device: 2
experts = Experts(
    gate_up=random_mxfp4((COUNT, 2 * INNER, WIDTH), 32, CPU),
    down=random_mxfp4((COUNT, WIDTH, INNER), 32, CPU),
    limit=7.0,
)
for rows in (2, 40):
    x, shared = (torch.randn(rows, WIDTH).bfloat16() for _ in range(2))
    chosen = torch.rand(rows, COUNT).topk(TOP).indices
    chosen[:, 0] = 5  # has several tiles
    chosen[::4, 1] = -1
    chosen[1] = -1
    weights = torch.rand(rows, TOP)
    assert triton_hopper.suits(experts, x)
    assert triton_coded.config_of(experts, chosen.numel()) is None  # unless a table says so
    with forced(triton_coded.FEW, triton_coded.FEW.candidates[1]):
        assert triton_coded.config_of(experts, 4 * COUNT) is None  # too many pairs
        found = triton_hopper.run_experts(x, experts, chosen, weights, shared)
    exact = reference.run_experts(*tolerance.widened((x, experts, chosen, weights, shared)))
    off = (found.double() - exact).norm() / exact.norm()
    assert off < 3e-2, (rows, off)
    assert torch.equal(found[1], shared[1])
assert Product.ran == 4
"""


def test_experts_in_codes_are_those_of_the_definition_where_the_product_is_what_it_says() -> None:
    interpreted(AROUND)
