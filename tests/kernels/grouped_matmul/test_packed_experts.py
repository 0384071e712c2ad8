"""Mixtures of packed experts through the interpreter: who chooses none, who is chosen by none,
and memory that nobody wrote.
"""

from tests.fakes.interpreter import interpreted

SET_UP = """
import torch

from kernels.cases_matmul import random_mxfp4
from kernels.grouped_matmul import reference, triton_cuda
from kernels.grouped_matmul.reference import Experts

empty = torch.empty
POISON = {torch.int32: 2147480000}


def poisoned(*shape, **kind):  # what a kernel reads without having written it would show
    made = empty(*shape, **kind)
    return made.fill_(POISON.get(made.dtype, torch.nan if made.is_floating_point() else 0xFF))


torch.empty = poisoned
WIDTH, INNER, COUNT, TOP = 64, 96, 5, 2
experts = Experts(
    gate_up=random_mxfp4((COUNT, 2 * INNER, WIDTH), 32, torch.device("cpu")),
    down=random_mxfp4((COUNT, WIDTH, INNER), 32, torch.device("cpu")),
    limit=7.0,
)


def both(chosen, x=None):
    rows = len(chosen)
    x = torch.randn(rows, WIDTH).bfloat16() if x is None else x
    weights, shared = torch.rand(rows, TOP), torch.randn(rows, WIDTH).bfloat16()
    found = triton_cuda.run_experts(x, experts, chosen, weights, shared)
    exact = reference.run_experts(x.double(), experts, chosen, weights.double(), shared.double())
    return found, exact, shared


def near(found, exact):
    assert found.isfinite().all()
    assert (found.double() - exact).norm() <= 2.5e-2 * exact.norm()
"""

NONE = (
    SET_UP
    + """
x = torch.randn(4, WIDTH).bfloat16()
x[1], x[2, 5] = torch.nan, torch.inf  # rows of a padded batch hold anything
chosen = torch.tensor([[0, 3], [-1, -1], [-1, -1], [3, -1]])
found, _, shared = both(chosen, x)
assert torch.equal(found[1:3], shared[1:3])
assert found.isfinite().all()
kept = torch.tensor([0, 3])
found, exact, _ = both(chosen[kept], x[kept])
near(found, exact)
everyone = torch.full((3, TOP), -1)
found, _, shared = both(everyone, torch.full((3, WIDTH), torch.nan).bfloat16())
assert torch.equal(found, shared)
"""
)

CROWDED = (
    SET_UP
    + """
for rows in (1, 8, 16, 17):  # of one expert: a part of a tile, a whole one, one more
    found, exact, _ = both(torch.tensor([[4, 1]]).repeat(rows, 1))
    near(found, exact)
x, chosen = torch.randn(21, WIDTH).bfloat16(), torch.randint(0, COUNT, (21, TOP))
weights, shared = torch.rand(21, TOP), torch.randn(21, WIDTH).bfloat16()
among = triton_cuda.run_experts(x, experts, chosen, weights, shared)  # larger tiles
alone = triton_cuda.run_experts(x[:2], experts, chosen[:2], weights[:2], shared[:2])
assert torch.equal(among[:2], alone)
found, exact, _ = both(torch.zeros(0, TOP, dtype=torch.int64))
assert found.shape == exact.shape == (0, WIDTH)
"""
)


def test_rows_that_choose_no_expert_get_what_all_rows_get_and_nothing_else():
    interpreted(NONE)


def test_experts_may_be_idle_or_chosen_by_all_whatever_memory_held_before():
    interpreted(CROWDED)
