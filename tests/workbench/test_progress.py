"""progress.json and orders: what is told of a run while it is measured, and asked of it."""

import dataclasses
import errno
import json
import os
import time

import pytest

from experiments.records import TrialState
from experiments.watch import Event, Stopped, Watch
from tests.fakes import progress, records
from workbench import files, reporter
from workbench.errors import UsageError
from workbench.progress import (
    ORDERS,
    PROGRESS,
    Progress,
    order_skip,
    order_stop,
    progress_text,
    read_progress,
    take_orders,
)
from workbench.reporter import Reporter
from workbench.store import Store


def test_what_is_written_is_read_back_as_it_was(tmp_path):
    for text in ("", records.UNICODE, *records.HOSTILE):
        said = progress.progress(text)
        progress.write(tmp_path, said)
        assert read_progress(tmp_path) == said
    idle = progress.progress(flying=False)
    progress.write(tmp_path, idle)
    assert read_progress(tmp_path) == idle


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"written_utc": 3}', "\0", "[" * 5000, '{"sweep": {"current": 1}}'],
)
def test_a_damaged_file_says_nothing_and_costs_the_run_nothing(tmp_path, text):
    run = records.fill_store(tmp_path, records.sweep_records()[:3], planned=3)
    (run.folder / PROGRESS).write_text(text)
    assert run.progress() is None
    assert run.summary.state == "complete"


def test_every_field_of_the_file_is_written_down():
    readme = (records.Path(__file__).parents[2] / "results/README.md").read_text()
    said = json.loads(progress_text(progress.progress()))
    names = {*said, *(f"sweep.{name}" for name in said["sweep"])} - {"sweep"}
    names |= {*said["sweep"]["current"], *said["sweep"]["current"]["seconds"][0]}
    for name in names:
        assert name in readme, name


def test_a_run_that_ended_early_by_its_own_rule_is_complete(tmp_path):
    run = records.fill_store(tmp_path, records.sweep_records()[:3], planned=24)
    assert run.summary.state == "interrupted"
    ended = dataclasses.replace(progress.progress(flying=False), ended_trials=3)
    progress.write(run.folder, ended)
    assert run.refresh().summary.state == "complete"
    assert run.summary.planned == 3


def test_a_run_with_a_cancelled_trial_wants_to_be_resumed(tmp_path):
    items = records.sweep_records()[:3]
    cancelled = dataclasses.replace(
        items[2], state=TrialState.CANCELLED, reason="interrupted", metrics={}, requests=()
    )
    run = records.fill_store(tmp_path, [*items[:2], cancelled], planned=3)
    assert run.trial(cancelled.trial_id).state is TrialState.CANCELLED
    assert run.summary.state == "interrupted"
    assert not run.points().set_index("trial_id")["valid"][cancelled.trial_id]


def test_orders_go_only_to_a_run_that_is_being_measured(tmp_path):
    run = records.fill_store(tmp_path, [records.record()])
    for order in (order_stop, order_skip):
        with pytest.raises(UsageError, match=r"nobody|no trial is in flight"):
            order(run.folder)
    assert not (run.folder / ORDERS).exists()
    with Store(tmp_path).writer(run.run_id):
        order_stop(run.folder)
        progress.write(run.folder, progress.progress())
        assert order_skip(run.folder) == "0123456789abcdef"
        assert order_skip(run.folder, "fedcba") == "fedcba"
        for hostile in ("../../run.json", "", "a/b", ".hidden", "a" * 3 + "\0"):
            with pytest.raises(UsageError, match="no trial id"):
                order_skip(run.folder, hostile)
        assert take_orders(run.folder) == (True, ["0123456789abcdef", "fedcba"])
        (run.folder / ORDERS / "folder").mkdir()
        assert take_orders(run.folder) == (False, [])


def until(holds, seconds=10.0):
    """Wait for another thread."""
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert holds()


def test_the_reporter_writes_obeys_and_says_the_last_word(tmp_path):
    watch = Watch()

    def say():
        return dataclasses.replace(progress.progress(), sweep=watch.snapshot())

    (tmp_path / ORDERS).mkdir()
    (tmp_path / ORDERS / "stop").touch()  # left over from a process that is gone
    with Reporter(tmp_path, watch, say, interval_s=0.01):
        until(lambda: read_progress(tmp_path) is not None)
        assert watch.stop_asked is None
        (tmp_path / ORDERS / "skip-abc").touch()
        until(lambda: watch.skip_asked("abc"))
        (tmp_path / ORDERS / "stop").touch()
        until(lambda: watch.stop_asked is Stopped.REQUEST)
        watch.tells(Event(time_utc="2026-11-29T12:00:00+00:00", words="the end is near"))
        watch.stops(Stopped.REQUEST)
    last = read_progress(tmp_path)
    assert last.sweep.stopped is Stopped.REQUEST
    assert last.sweep.events[-1].words == "the end is near"
    assert not list(tmp_path.glob(".*.tmp"))


def test_a_full_disk_costs_the_report_and_not_the_run(tmp_path, monkeypatch):
    calls = []

    def full(*_):
        calls.append(1)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.Path, "write_bytes", full)
    with Reporter(tmp_path, Watch(), progress.progress, interval_s=0.01):
        until(lambda: len(calls) > 2)
    assert read_progress(tmp_path) is None
    assert reporter.INTERVAL_S >= 0.5, "the report may not disturb what it reports"


def test_a_reader_never_sees_half_a_file(tmp_path):
    watch = Watch()
    count = iter(range(10**9))

    def say():
        said = progress.progress("x" * (next(count) % 5000))
        return dataclasses.replace(said, stored=3)

    seen: list[Progress | None] = []
    with Reporter(tmp_path, watch, say, interval_s=0.0):
        until(lambda: (tmp_path / PROGRESS).exists())
        seen += [read_progress(tmp_path) for _ in range(200)]
    assert all(found is not None and found.stored == 3 for found in seen)
