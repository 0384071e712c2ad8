"""Caches of preempted sequences: their copies are the device's work, however late it does it."""

import pytest
import torch

from engine.accelerator.cpu import CpuAccelerator
from engine.cache.blocks import Handle
from engine.cache.groups import PagedGroup, RingGroup, RowFormat
from engine.cache.storage import CacheStorage
from engine.config import EngineConfig
from engine.core import Engine
from engine.errors import CapacityError
from engine.sequence import HostCopy
from engine.step import CacheMove, ScheduledBatch
from engine.swapping import HostCaches
from tests.fakes.hash_model import HashSource
from tests.fakes.recorder import FakeRecorder

GROUPS = (
    PagedGroup(name="pairs", width=3, tokens_per_row=2, row_format=RowFormat.FLOAT32),
    PagedGroup(name="packed", width=64, tokens_per_row=1, row_format=RowFormat.FP8_GROUP32),
    RingGroup(name="ring", width=2, rows=5, row_format=RowFormat.PLAIN),
)


def storage(blocks, slots):
    return CacheStorage.allocate(
        GROUPS, blocks=blocks, block_tokens=4, slots=slots, dtype=torch.float32
    )


def caches():
    """Device rows that differ from each other, and host memory that is smaller."""
    found = HostCaches(storage(9, 3), storage(6, 2))
    for tensor in found.device.tensors.values():
        values = torch.arange(tensor.numel()).view(tensor.shape) % 251
        tensor.copy_(values)
    return found


def move(blocks, slot, host_blocks, host_slot):
    copy = HostCopy(tuple(Handle(b, 0) for b in host_blocks), Handle(host_slot, 0), 0)
    return CacheMove(None, tuple(Handle(b, 0) for b in blocks), Handle(slot, 0), copy)


def batch(*, out=(), back=()):
    return ScheduledBatch(0, (), 0, tuple(out), tuple(back))


def rows(where, blocks, slot):
    return {
        name: torch.cat(
            [tensor.view(-1, where.rows_per_block(name), tensor.shape[1])[b] for b in blocks]
            if name != "ring"
            else [tensor.view(-1, 5, 2)[slot]]
        ).clone()
        for name, tensor in where.tensors.items()
    }


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("host_blocks", [(0, 1, 2), (2, 1, 0), (4, 5, 1)])
def test_what_comes_back_is_what_left_whatever_blocks_it_lay_in(host_blocks):
    c = caches()
    whole, left = rows(c.device, range(9), 0), rows(c.device, (7, 2, 5), 1)
    c.prepare(batch(out=[move((7, 2, 5), 1, host_blocks, 1)])).run()
    assert same(whole, rows(c.device, range(9), 0)), "to leave changes nothing on the device"
    for tensor in c.device.tensors.values():
        tensor.zero_()
    c.prepare(batch(back=[move((0, 8, 3), 2, host_blocks, 1)])).run()
    assert same(left, rows(c.device, (0, 8, 3), 2))
    assert not any(t.any() for t in rows(c.device, (1, 2, 4, 5, 6, 7), 1).values())


def test_one_step_lets_go_before_it_takes_back():
    """The blocks that one sequence leaves are those that another comes back to."""
    c = caches()
    first, second = rows(c.device, (1, 2), 0), rows(c.device, (3, 4), 1)
    c.prepare(batch(out=[move((1, 2), 0, (0, 1), 0)])).run()
    c.prepare(batch(out=[move((3, 4), 1, (3, 2), 1)], back=[move((4, 3), 1, (0, 1), 0)])).run()
    assert same(first, rows(c.device, (4, 3), 1))
    assert same(second, rows(c.host, (3, 2), 1))


def test_copies_of_a_device_that_is_late_keep_their_order():
    """Prepared early and done late, a block of host memory goes from one sequence to the next."""
    c, recorder = caches(), FakeRecorder()
    first, second = rows(c.device, (0, 1), 0), rows(c.device, (2, 3), 1)
    before = [t.clone() for t in (*c.device.tensors.values(), *c.host.tensors.values())]
    steps = [
        batch(out=[move((0, 1), 0, (5, 2), 1)]),
        batch(back=[move((6, 7), 2, (5, 2), 1)]),
        batch(out=[move((2, 3), 1, (2, 5), 1)]),
        batch(back=[move((8, 0), 0, (2, 5), 1)]),
    ]
    graphs = []
    for step in steps:
        swap = c.prepare(step)
        graphs.append(recorder.record(lambda swap=swap: swap.run() or ()))
    after = (*c.device.tensors.values(), *c.host.tensors.values())
    assert all(map(torch.equal, before, after)), "the host copied something itself"
    for graph in graphs:
        graph.replay()
    assert same(first, rows(c.device, (6, 7), 2))
    assert same(second, rows(c.device, (8, 0), 0))


def test_the_host_computes_nothing_from_rows_that_may_not_have_arrived():
    c, recorder = caches(), FakeRecorder()
    steps = (batch(out=[move((0, 1), 0, (5, 2), 1)]), batch(back=[move((6, 7), 2, (5, 2), 1)]))
    places = {tensor.untyped_storage().data_ptr() for tensor in c.host.tensors.values()}
    for step in steps:
        swap = c.prepare(step)
        graph = recorder.record(lambda swap=swap: swap.run() or ())
        touching = [
            func._schema.name.removeprefix("aten::")
            for func, _, _, _, touched in graph.tape.calls
            if touched & places
        ]
        assert set(touching) == {"slice", "copy_"}
        copies = [call for call in graph.tape.calls if call[0]._schema.name == "aten::copy_"]
        assert copies
        assert all(args[2] for _, args, *_ in copies), "a copy that waits holds up the host"


class _Watched(CpuAccelerator):
    """Counts the rows it is asked for in host memory, and has no more than `most`."""

    def __init__(self, most=10**9):
        self.most, self.rows = most, 0

    def zeros_on_host(self, like):
        self.rows += len(like)
        if self.rows > self.most:
            raise RuntimeError("cannot lock more pages")
        return super().zeros_on_host(like)


def engine(accelerator, swap_tokens):
    values = {"dtype": "float64", "block_tokens": 4, "replay_mode": "off", "max_num_seqs": 2}
    config = EngineConfig(model="hash", swap_tokens=swap_tokens, **values)
    return Engine(config, source=HashSource(), accelerator=accelerator)


def test_host_memory_is_the_devices_to_give_and_asked_for_where_there_is_swapping():
    device = _Watched()
    engine(device, 0)
    assert device.rows == 0
    engine(device, 64)
    assert device.rows > 64


def test_host_memory_that_is_not_given_is_a_capacity_error():
    with pytest.raises(CapacityError, match="cannot lock more pages"):
        engine(_Watched(most=32), 64)
