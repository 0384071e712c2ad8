"""Products from weights that oneDNN has laid out, against their definitions."""

from dataclasses import replace

import pytest
import torch

from engine.accelerator.cpu import CpuAccelerator
from kernels import tolerance
from kernels.cases import SMALL_CASES
from kernels.fused_linear import torch_cpu
from kernels.ops import REFERENCE
from kernels.plan import resolve
from kernels.registry import ModelShape
from kernels.target import CPU, KernelChoice

OPS = ("norm_linear", "norm_swiglu", "norm_logits", "add_linear")
CASES = [case for case in SMALL_CASES if case.op in OPS]
HOST = CpuAccelerator().target()
SHAPE = ModelShape(dtype="bfloat16", width=64, head_dim=16, streams=1)

needs_library = pytest.mark.skipif(
    not HOST.has_laid_out_products, reason="oneDNN has no bfloat16 products for this processor"
)


@needs_library
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.op} {case.name}")
@pytest.mark.parametrize("rows", [1, 5, 40])
def test_a_product_agrees_with_its_definition(case, rows):
    torch.manual_seed(0)
    arguments = case.make(rows, torch.bfloat16, torch.device("cpu"))
    *others, weight = arguments
    found = case.observe(getattr(torch_cpu, case.op), (*others, torch_cpu.laid_out(weight)))
    exact = case.observe(getattr(REFERENCE, case.op), tolerance.widened(arguments))
    assert found.shape == exact.shape
    assert tolerance.error(found, exact) <= tolerance.RELATIVE[torch.bfloat16]


def test_a_cpu_gets_all_of_them_for_bfloat16_or_none():
    able = replace(HOST, has_laid_out_products=True, has_numba=True)
    served = {d.op for d in resolve(able, SHAPE, KernelChoice.AUTO).decisions
              if d.implementation in ("torch", "numba")}  # fmt: skip
    chosen = {"choose_highest", "choose_tokens"}  # of any dtype
    assert served == {"laid_out", *OPS, "attend_fresh", "run_layers", *chosen}
    for target, dtype, choice in (
        (CPU, "bfloat16", KernelChoice.AUTO),
        (replace(able, has_numba=False), "bfloat16", KernelChoice.AUTO),
        (able, "float32", KernelChoice.AUTO),
        (able, "bfloat16", KernelChoice.REFERENCE),
    ):
        plan = resolve(target, replace(SHAPE, dtype=dtype), choice)
        assert {getattr(plan.ops, op) for op in OPS} == {getattr(REFERENCE, op) for op in OPS}
