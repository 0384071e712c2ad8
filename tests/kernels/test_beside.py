"""Work beside its caller: who waits for whom, and what is held until then."""

import gc
import weakref

import pytest
import torch

from kernels import beside
from kernels.beside import Beside, Lane, ready


class FakeStream:
    """Tells what is asked of it."""

    def __init__(self, name, told):
        self.device, self.name, self.told = torch.device("cuda"), name, told

    def wait_stream(self, other):
        self.told.append(f"{self.name} waits for {other.name}")

    def record_event(self):
        self.told.append("done")
        return self

    def wait_event(self, event):
        self.told.append(f"{self.name} waits for {event.name}")

    def __enter__(self):
        self.told.append(f"into {self.name}")

    def __exit__(self, *_):
        self.told.append(f"out of {self.name}")


@pytest.fixture
def told(monkeypatch):
    told = []
    main = FakeStream("main", told)
    monkeypatch.setattr(beside.torch, "Stream", lambda device, priority: FakeStream("side", told))
    monkeypatch.setattr(beside.torch.accelerator, "current_stream", lambda device: main)
    return told


def test_work_begins_after_what_was_launched_and_is_waited_for_where_its_result_is_asked_for(told):
    side = Beside(torch.device("cuda"))
    later = side.start(lambda: told.append("work") or 7, 3)
    told.append("more")
    assert later.result() == 7
    assert told == [
        "side waits for main", "into side", "work", "done", "out of side", "more",
        "main waits for side",
    ]  # fmt: skip
    assert later.result() == 7
    assert told.count("main waits for side") == 1, "once is enough"


def test_what_a_work_reads_is_held_with_its_result(told):
    class Held:
        """An input that tells when it goes."""

    held = Held()
    seen = weakref.ref(held)
    later = Beside(torch.device("cuda")).start(lambda held=held: id(held), 1)
    del held
    gc.collect()
    assert seen() is not None
    later.result()
    gc.collect()
    assert seen() is not None, "another stream may have asked"
    del later
    gc.collect()
    assert seen() is None


def test_what_ran_at_once_holds_nothing():
    held = torch.ones(1)
    seen = weakref.ref(held)
    later = Beside().start(lambda held=held: 7, 1)
    del held
    gc.collect()
    assert seen() is None
    assert later.result() == 7


def test_a_work_that_runs_beside_others_has_a_lane_of_its_own(told):
    for one in (Lane.SOON, Lane.AHEAD):
        side = Beside(torch.device("cuda"), one)
        found = [side.start(beside.lane, rows).result() for rows in (1, 257)]
        assert found == [one, Lane.CALLER]
    with pytest.raises(ZeroDivisionError):
        side.start(lambda: 1 / 0, 1)
    assert beside.lane() is Lane.CALLER


@pytest.mark.parametrize("rows", [0, 257])
def test_many_rows_and_none_run_where_their_caller_does(told, rows):
    side = Beside(torch.device("cuda"))
    assert not side.suits(rows)
    assert side.start(lambda: 7, rows).result() == 7
    assert told == []


def test_a_device_without_streams_runs_work_at_once():
    for device in (None, torch.device("cpu")):
        assert Beside(device).start(lambda: 7, 1).result() == 7


def test_a_tensor_is_ready_and_so_is_one_that_was_on_its_way():
    one = torch.ones(1)
    assert ready(one) is one
    assert ready(Beside().start(lambda: one, 1)) is one
