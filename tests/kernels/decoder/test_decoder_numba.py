"""Whole stacks of layers in one compiled loop, against their definition."""

from dataclasses import replace

import pytest
import torch

from engine.accelerator.cpu import CpuAccelerator
from kernels import tolerance
from kernels.cases_decoder import layers_case
from kernels.decoder import numba_cpu
from kernels.decoder.numba_cpu import run_layers
from kernels.decoder.reference import Layers
from kernels.fused_linear.blocks import block_address
from kernels.fused_linear.torch_cpu import laid_out
from kernels.ops import REFERENCE

HOST = CpuAccelerator().target()
if not (HOST.has_laid_out_products and HOST.has_numba):
    pytest.skip("no bfloat16 products of oneDNN, or no numba here", allow_module_level=True)
if block_address(laid_out(torch.zeros(64, 128).bfloat16())) is None:
    pytest.skip("oneDNN lays weights out in another way here", allow_module_level=True)

CASES = [
    layers_case(128, 192, (4, 2, 32), 70, has_norm=False, chunk=1),
    layers_case(192, 128, (2, 2, 64), 40, has_norm=True, chunk=1),
    layers_case(128, 192, (4, 2, 32), 70, has_norm=True, chunk=3),  # rows of one sequence
    layers_case(96, 192, (4, 2, 32), 40, has_norm=True, chunk=1),  # no whole blocks
]
WIDE = layers_case(64, 1088, (2, 1, 32), 20, has_norm=False, chunk=1)  # blocks are shared
ONE_LOOP = [*CASES[:2], WIDE]
CASES.append(WIDE)


def laid(arguments):
    x, layers, turn, caches, seen = arguments
    each = [
        replace(layer, **{name: laid_out(getattr(layer, name)) for name in
                          ("qkv", "out", "gate_up", "down")})
        for layer in layers.each
    ]  # fmt: skip
    return x, Layers(tuple(each)), turn, caches, seen


@pytest.fixture
def loops(monkeypatch):
    """How many rows each compiled loop got."""
    ran, run_rows = [], numba_cpu.run_rows
    monkeypatch.setattr(
        numba_cpu, "run_rows", lambda x, *rest: (ran.append(len(x)), run_rows(x, *rest))
    )
    return ran


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 9])
def test_it_agrees_with_its_definition(case, rows, loops):
    torch.manual_seed(0)
    arguments = case.make(rows, torch.bfloat16, torch.device("cpu"))
    found = case.observe(run_layers, laid(arguments))
    exact = case.observe(REFERENCE.run_layers, tolerance.widened(arguments))
    assert tolerance.error(found, exact) <= case.bfloat16_limit
    is_one_loop = rows <= 4 and (case in ONE_LOOP or (case is CASES[2] and rows == 1))
    assert loops == ([rows] if is_one_loop else [])


def some(arguments, at):
    """The rows `at` of them, each of which has a sequence."""
    x, layers, turn, caches, seen = arguments
    count = at.stop - at.start
    part = replace(
        seen,
        table=seen.table[at],
        owner=torch.arange(count),
        positions=seen.positions[at],
        starts=tuple(range(count + 1)),
        lengths=seen.lengths[at],
    )
    turn = replace(turn, cos=turn.cos[at], sin=turn.sin[at])
    return x[at], layers, turn, caches, part


@pytest.mark.parametrize("case", ONE_LOOP, ids=lambda case: case.name)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_row_is_the_same_beside_others_and_in_any_number_of_threads(case, threads, loops):
    torch.manual_seed(1)
    arguments = laid(case.make(4, torch.bfloat16, torch.device("cpu")))
    together = case.observe(run_layers, arguments)[0]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for at in (slice(0, 4), slice(0, 1), slice(1, 3), slice(1, 4), slice(3, 4)):
            found = case.observe(run_layers, some(arguments, at))[0]
            assert torch.equal(found, together[at]), at
    finally:
        torch.set_num_threads(before)
    assert loops == [4, 4, 1, 2, 3, 1]


def test_weights_are_read_as_they_lie_which_the_number_of_threads_decides():
    """Those of one shape lie in blocks for one thread and in another way for three."""
    case = layers_case(64, 64, (8, 2, 128), 20, has_norm=False, chunk=1)
    arguments = case.make(2, torch.bfloat16, torch.device("cpu"))
    exact = case.observe(REFERENCE.run_layers, tolerance.widened(arguments))
    held, before = [], torch.get_num_threads()
    try:
        for threads in (1, 3, 1):
            torch.set_num_threads(threads)
            held.append(laid(arguments))
            for each in held:
                found = case.observe(run_layers, each)
                assert tolerance.error(found, exact) <= case.bfloat16_limit
    finally:
        torch.set_num_threads(before)
