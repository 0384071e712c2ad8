"""Triton kernels through the interpreter, and compiled for devices that are not here."""

import pytest

from kernels import budgets
from tests.fakes.interpreter import INTERPRETED, run

SHARES = 8  # of the cases, each in a process of its own
CHECKED = (
    INTERPRETED
    + """
from kernels.cases import SMALL_CASES
from kernels.check import check
share = SMALL_CASES[SHARE::SHARES]
found = list(check(torch.device("cpu"), rows=(0, 1, 5), reruns=1, cases=share))
failed = [o for o in found if not o.passed]
print(len(found), "checked")
assert not failed, failed
"""
)

ODD_VALUES = (
    INTERPRETED
    + """
from kernels import formats
from kernels.quantize.triton_cuda import quantise_dequantise
from kernels.routing.reference import Router
from kernels.routing.triton_cuda import route
x = torch.randn(60, 64) * torch.logspace(-44, 36, 60)[:, None]
x[0], x[1, 3], x[2, 5], x[3, 40], x[4] = 0, torch.nan, torch.inf, -torch.inf, -0.0
x[5:13] = torch.linspace(-470, 470, 512).view(8, 64)  # e4m3 saturates, values between two codes
x[13:15] = torch.linspace(-8, 8, 129)[:128].view(2, 64)  # ties of e2m1
for packing in (*formats.PACKED_FORMATS, formats.FP8_GROUP128):
    x = x.view(30, 128) if packing == formats.FP8_GROUP128 else x
    for rows in (x, x.bfloat16()):
        exact = formats.quantise_dequantise(rows, packing)
        found = quantise_dequantise(rows, packing)
        torch.testing.assert_close(found, exact, rtol=0, atol=0, equal_nan=True)
weight = torch.randn(8, 16)
weight[3] = torch.nan
router = Router(
    weight=weight, bias=torch.full((8,), -torch.inf), experts_per_token=3, normalise=True, scale=1.0
)
for rows in (torch.randn(4, 16), torch.full((4, 16), torch.nan)):
    chosen, _ = route(rows, router)
    assert all(len(set(row)) == 3 and set(row) <= set(range(8)) for row in chosen.tolist()), chosen
"""
)

VIEWS = (
    INTERPRETED
    + """
from kernels.attention.reference import OwnRows
from kernels.attention.triton_cuda import attend_cached
from kernels.cache_ops.reference import CachedRows
from kernels.sampling.reference import SamplingRules
from kernels.sampling.triton_cuda import choose_tokens

def spread(value):
    return torch.tensor([value]).expand(3)  # rows of one sequence: all lie in one place

cache = CachedRows(tensor=torch.randn(20, 16), width=16, packing=None)
queries, sink = torch.randn(3, 2, 16), torch.zeros(2)
views = (spread(2), spread(3), spread(1))
found = []
for slots, positions, floors in (views, [view.clone() for view in views]):
    own = OwnRows(
        cache=cache, ring=5, length=4, slots=slots, positions=positions, floors=floors
    )
    warmth = torch.tensor([0.8], dtype=torch.float64).expand(3)
    rules = SamplingRules(temperatures=warmth, seeds=slots, narrowing=None)
    drawn = choose_tokens(torch.linspace(1, 0, 50).repeat(3, 1), positions, rules)
    found.append((attend_cached(queries, own, None, sink, 0.25), drawn.token_ids))
assert torch.equal(found[0][0], found[1][0])
assert torch.equal(found[0][1], found[1][1])
assert len(set(found[0][1].tolist())) == 1 and found[0][1][0] != 0, "drawn, and not the highest"
"""
)


@pytest.mark.parametrize("share", range(SHARES))
def test_every_kernel_agrees_with_its_definition_in_the_interpreter(share):
    pytest.importorskip("triton", reason="triton is not installed")
    code = f"SHARE, SHARES = {share}, {SHARES}\n{CHECKED}"
    assert int(run(code, TRITON_INTERPRET="1").split()[0]) > 50


def test_odd_values_are_rounded_and_chosen_as_by_the_definitions_in_the_interpreter():
    pytest.importorskip("triton", reason="triton is not installed")
    run(ODD_VALUES, TRITON_INTERPRET="1")


def test_numbers_of_rows_may_be_views_of_one_in_the_interpreter():
    pytest.importorskip("triton", reason="triton is not installed")
    run(VIEWS, TRITON_INTERPRET="1")


@pytest.mark.parametrize("family", sorted(budgets.read()))
def test_every_kernel_compiles_for_its_devices_within_its_budget(family):
    pytest.importorskip("triton", reason="triton is not installed")
    code = f"import sys; from kernels.aot import main; sys.exit(main(['--family', '{family}']))"
    assert "within budget" in run(code)
