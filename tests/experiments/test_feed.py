"""Requests are made before they are due, and sent as if they had not been."""

import pytest

from experiments.arrival import ClosedArrival, RoundArrival, Share, TimedArrival
from experiments.feed import MOST_AHEAD, ItemFeed


def feed(arrival, share=Share()):  # noqa: B008
    made = []
    return ItemFeed(lambda index: made.append(index) or index, arrival, share), made


def test_what_is_made_ahead_is_taken_in_order_and_made_once():
    target, made = feed(ClosedArrival(3), Share(index=1, of=2))
    assert target.look_ahead(2)
    assert target.look_ahead(2)
    assert not target.look_ahead(2)
    assert [target.take() for _ in range(5)] == [1, 3, 5, 7, 9] == made
    assert target.look_ahead(1)
    assert target.take() == 11


@pytest.mark.parametrize(
    ("arrival", "most", "count"),
    [
        (ClosedArrival(3), 100, 3),
        (ClosedArrival(3), 2, 2),
        (RoundArrival(4), 100, 4),
        (TimedArrival([0.0, 0.5, 1.0]), 100, 1),
        (ClosedArrival(5000), 5000, MOST_AHEAD),
    ],
)
def test_a_phase_opens_with_what_is_due_at_once(arrival, most, count):
    target, made = feed(arrival)
    target.open_with(most)
    assert made == list(range(count))
