"""What is printed while an engine starts: nothing of a short start, two lines of a long one."""

import dataclasses
from collections import Counter

import pytest

from experiments.clock import VirtualClock
from experiments.records import MetricValue
from experiments.watch import Activity, Event, Watch
from tests.fakes import progress, records
from workbench.engine_starts import EngineStarts
from workbench.trial_line import trial_line


class Board:
    """A watch, the clock of who looks at it, and what was said."""

    def __init__(self):
        self.watch, self.clock, self.said = Watch(), VirtualClock(), []
        self.starts = EngineStarts(self.watch, self.said.append, lambda: self.clock.now_ns() / 1e9)

    def begins(self, attempt=1, activity=Activity.STARTING):
        current = dataclasses.replace(progress.current(), attempt=attempt, activity=activity)
        self.watch.begins(current)

    def looks_for(self, seconds):
        """As the thread does, four times a second."""
        for _ in range(round(seconds * 4)):
            self.starts.look()
            self.clock.sleep(0.25)


@pytest.fixture
def board():
    return Board()


def test_a_long_start_is_told_when_it_goes_on_and_when_it_is_over(board):
    board.begins()
    board.looks_for(45)
    assert board.said == ["starting the engine: 16 in flight, draft length 5"]
    board.watch.serves()
    board.looks_for(10)
    assert board.said[1:] == ["the engine is ready after 45 s"]


def test_a_short_start_and_a_trial_on_a_running_engine_say_nothing(board):
    board.begins()
    board.looks_for(0.75)
    board.watch.serves()
    board.looks_for(5)
    board.begins(activity=Activity.SERVING)
    board.looks_for(5)
    assert board.said == []


def test_a_start_that_fails_is_never_ready_and_the_next_attempt_counts_anew(board):
    board.begins()
    board.looks_for(20)
    board.begins(attempt=2)
    board.looks_for(3)
    board.watch.serves()
    board.looks_for(1)
    assert board.said[1:] == [
        "starting the engine, attempt 2: 16 in flight, draft length 5",
        "the engine is ready after 3 s",
    ]


def test_a_start_that_ends_the_run_is_told_by_its_trial_alone(board):
    board.begins()
    board.looks_for(20)
    board.watch.ends(Event(time_utc="2026-11-29T12:00:00+00:00", words="failed"))
    board.looks_for(5)
    assert Counter(line.split()[0] for line in board.said) == {"starting": 1}


def test_requests_that_were_sent_twice_stand_in_the_line_of_their_trial():
    found = records.record()
    assert "twice" not in trial_line(found)
    resent = {**found.metrics, "resent_requests": MetricValue(value=3.0, n=40)}
    assert "  [3 requests sent twice]" in trial_line(dataclasses.replace(found, metrics=resent))
