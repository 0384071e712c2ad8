"""What a program on Hopper takes of keys and queries, and which keys are left to other kernels."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")

from kernels import formats
from kernels.cases_selection import score_case
from kernels.indexer import triton_cuda, triton_hopper
from kernels.indexer.triton_hopper import queries_of_program, tiles_of_program
from kernels.indexer.triton_hopper_shared import SETS

CPU = torch.device("cpu")


@pytest.mark.parametrize("rows", [1, 7, 32, 128, 8192])
@pytest.mark.parametrize("tiles", [1, 5, 64, 256])
def test_few_queries_are_cut_into_as_many_programs_as_run_at_once(rows, tiles):
    each = tiles_of_program(rows, tiles, 400)
    programs = rows * -(-tiles // each)
    assert 1 <= each <= tiles
    assert programs <= max(400, rows)
    assert each == 1 or programs > 400 / 2


@pytest.mark.parametrize(
    ("shared", "tiles", "expected"),
    [(2, 16, 4), (32, 16, 4), (128, 16, 16), (8192, 16, 128), (8192, 1, 64), (6, 2048, 8)],
)
def test_queries_of_a_sequence_are_divided_as_long_as_processors_are_idle(shared, tiles, expected):
    each = queries_of_program(shared, tiles, 4, 132)
    assert each == expected
    assert each % 4 == 0
    assert each <= 4 * SETS.value


@pytest.mark.parametrize(
    ("packing", "width", "per_block", "is_mine"),
    [
        (formats.FP4_GROUP32, 128, 16, True),
        (formats.FP4_GROUP32, 128, 2, False),  # not at multiples of 16 bytes
        (formats.FP4_GROUP32, 128, 12, False),
        (formats.FP4_GROUP32, 64, 16, False),
        (formats.FP8_GROUP128, 128, 16, False),
        (None, 128, 16, False),
    ],
)
def test_other_keys_are_left_to_the_kernel_for_every_device(
    packing, width, per_block, is_mine, monkeypatch
):
    left = torch.zeros(())
    monkeypatch.setattr(triton_cuda, "score_rows", lambda *_: left)
    monkeypatch.setattr(triton_hopper, "_launch_own", lambda *_: None)
    made = score_case(16, width, 40, packing).make(3, torch.bfloat16, CPU)
    queries, weights, keys, pages, *rest = made
    pages = replace(pages, rows_per_block=per_block)
    found = triton_hopper.score_rows(queries, weights, keys, pages, *rest)
    assert (found is left) != is_mine


@pytest.mark.parametrize(
    ("tables", "rows", "heads", "context", "is_mine"),
    [
        (1, 2, 32, 40, True),
        (3, 6, 32, 40, True),
        (3, 6, 20, 40, False),  # 128 is no multiple of it
        (3, 6, 32, 20_000, False),  # of which most would be decoding
        (3, 60, 32, 20_000, True),
    ],
)
def test_few_queries_of_many_sequences_are_left_to_it_too(
    tables, rows, heads, context, is_mine, monkeypatch
):
    left = torch.zeros(())
    monkeypatch.setattr(triton_cuda, "score_rows", lambda *_: left)
    monkeypatch.setattr(triton_hopper, "_launch_shared", lambda *_: None)
    made = score_case(heads, 128, 40, formats.FP4_GROUP32).make(rows, torch.bfloat16, CPU)
    queries, weights, keys, pages, counts, _ = made
    pages = replace(pages, table=pages.table[:tables])
    found = triton_hopper.score_rows(queries, weights, keys, pages, counts, context)
    assert (found is left) != is_mine
