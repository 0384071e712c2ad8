"""Pairs in order of their experts, through the interpreter: counted once, or by each program."""

from tests.fakes.interpreter import interpreted

GROUPED = """
import torch

from kernels.grouped_matmul import triton_tiles
from kernels.grouped_matmul.triton_tiles import Tiles


def held(chosen, experts, size):
    tiles, flat = Tiles.of(chosen, experts, size), chosen.flatten()
    some = torch.sort(flat, stable=True).indices[(flat < 0).sum() :]
    assert torch.equal(tiles.order[: len(some)].long(), some)
    assert torch.equal(tiles.places[some].long(), torch.arange(len(some)))
    table, first = [], 0
    for expert, count in enumerate(torch.bincount(flat[flat >= 0], minlength=experts).tolist()):
        table += [(expert, first + at, first + count) for at in range(0, count, size)]
        first += count
    number = int(tiles.tiles[0])
    assert number == len(table) <= tiles.most
    found = (tiles.expert, tiles.start, tiles.end)
    assert [tuple(row) for row in torch.stack(found)[:, :number].T.tolist()] == table


def drawn(rows, top, experts):
    chosen = torch.rand(rows, experts).topk(min(top, experts)).indices
    chosen[1::3, 1] = -1
    if rows > 1:
        chosen[-1] = -1
    return chosen.contiguous()


held(drawn(1, 6, 384), 384, 128)
held(drawn(300, 8, 9), 9, 128)  # several programs, of whom each counts all
triton_tiles.FEW_PAIRS = 100
held(drawn(130, 6, 40), 40, 16)
held(drawn(400, 2, 3), 3, 128)
held(torch.full((70, 2), -1), 4, 8)  # nobody chooses
held(torch.zeros((900, 1), dtype=torch.int64), 40, 64)  # everybody chooses one
"""


def test_pairs_of_an_expert_are_beside_each_other_and_tiles_hold_all_of_them() -> None:
    interpreted(GROUPED)
