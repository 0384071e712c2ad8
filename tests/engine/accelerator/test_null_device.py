"""The device of tests and simulations."""

import pytest
import torch

from engine.accelerator.cpu import CpuAccelerator
from engine.accelerator.null import NullAccelerator, VirtualClock


def device(seconds, **values):
    return NullAccelerator(VirtualClock(), step_seconds=iter(seconds).__next__, **values)


def noting(log, name):
    def work():
        log.append(name)
        return (torch.tensor([name]),)

    return work


def test_work_runs_when_it_is_waited_for_and_all_before_it_first():
    null, log = device([1.0, 2.0]), []
    null.submit(noting(log, 1))
    second = null.submit(noting(log, 2))
    assert log == []
    assert second.wait()[0].tolist() == [2]
    assert log == [1, 2]
    assert null.clock.now_ns == 3_000_000_000


def test_a_prompt_device_is_done_with_what_came_before_a_submission():
    null, log = device([1.0, 1.0], is_prompt=lambda: True), []
    null.submit(noting(log, 1))
    null.submit(noting(log, 2))
    assert log == [1]
    assert null.clock.now_ns == 0


def test_idle_time_is_that_between_works():
    null = device([1.0, 1.0, 1.0])
    null.clock.advance_to(5_000_000_000)  # before the first work it does not count
    null.submit(noting([], 1)).wait()
    first, second = (null.submit(noting([], n)) for n in (2, 3))
    first.wait()
    null.clock.advance_to(20_000_000_000)
    second.wait()  # ran long ago
    assert (null.busy_s, null.idle_s) == (3.0, 0.0)
    assert null.clock.now_ns == 20_000_000_000


def test_a_clock_may_tick_with_every_look():
    clock = VirtualClock(tick_ns=3)
    assert [clock(), clock()] == [3, 6]
    clock.advance_to(4)
    assert clock.now_ns == 6


@pytest.mark.parametrize("accelerator", [CpuAccelerator(), device([0.0])])
def test_what_work_raises_is_raised_by_the_wait(accelerator):
    ticket = accelerator.submit(lambda: 1 / 0)
    accelerator.synchronize()
    with pytest.raises(ZeroDivisionError):
        ticket.wait()
