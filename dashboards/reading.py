"""Cached reads of the store. Stored trials never change: what was read is not read again."""

from __future__ import annotations

import argparse
import sys
import threading

import pandas as pd
import streamlit as st

import workbench as wb


class Reader:
    """One stored run, read once and then only what was added; shared by all visitors."""

    def __init__(self, store: str, run_id: str) -> None:
        self._run = wb.Store(store).run(run_id)
        self._lock = threading.Lock()
        self._tables: tuple[int, pd.DataFrame, pd.DataFrame] | None = None

    @property
    def run(self) -> wb.Run:
        """The run as of the last refresh."""
        return self._run

    def refresh(self) -> wb.RunSummary:
        """Read what was stored since; the run in one line."""
        with self._lock:
            return self._run.refresh().summary

    def holds(self, trial_id: str) -> bool:
        """True where the run has stored the trial."""
        return trial_id in self._run.trial_ids()

    def points(self) -> pd.DataFrame:
        """One row a point, the mean of its repeats. Not to be changed: every page shares it."""
        return self._read()[1]

    def points_at(self, prices: wb.Prices) -> pd.DataFrame:
        """The same rows with costs by `prices`."""
        with self._lock:
            return self._run.points(prices=prices)

    def trials(self) -> pd.DataFrame:
        """One row a trial. Not to be changed: every page shares it."""
        return self._read()[2]

    def _read(self) -> tuple[int, pd.DataFrame, pd.DataFrame]:
        with self._lock:
            count = len(self._run.trial_ids())
            if self._tables is None or self._tables[0] != count:
                self._tables = (count, self._run.points(), self._run.trials())
            return self._tables


def store_path() -> str:
    """The store that the pages were started with: `streamlit run app.py -- --store PATH`."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--store", default="results")
    return parser.parse_known_args(sys.argv[1:])[0].store


def reader(run_id: str) -> Reader:
    """The run named by its id; StoreError when the store has none."""
    return _reader(store_path(), run_id)


def summaries() -> list[wb.RunSummary]:
    """Every readable run, newest first, at most five seconds old."""
    return _survey(store_path())[0]


def unreadable() -> list[str]:
    """Why each of the other runs cannot be read."""
    return _survey(store_path())[1]


@st.cache_resource(show_spinner=False)
def _reader(store: str, run_id: str) -> Reader:
    return Reader(store, run_id)


@st.cache_data(show_spinner=False, ttl=5)
def _survey(store: str) -> tuple[list[wb.RunSummary], list[str]]:
    found: list[wb.RunSummary] = []
    troubles: list[str] = []
    for run_id in wb.Store(store).run_ids():
        try:
            found.append(_reader(store, run_id).refresh())
        except wb.BenchError as error:
            troubles.append(str(error))
    newest_first = sorted(found, key=lambda run: (run.started_utc, run.run_id), reverse=True)
    return newest_first, troubles


@st.cache_data(show_spinner=False, max_entries=64)
def requests(store: str, run_id: str, trial_id: str) -> pd.DataFrame:
    """The requests of one trial."""
    return _reader(store, run_id).run.requests(trial_id)


def trial(run_id: str, trial_id: str) -> wb.TrialRecord:
    """The whole record of one trial. Not to be changed: every page shares it."""
    return _trial(store_path(), run_id, trial_id)


@st.cache_resource(show_spinner=False, max_entries=32)
def _trial(store: str, run_id: str, trial_id: str) -> wb.TrialRecord:
    return _reader(store, run_id).run.trial(trial_id)
