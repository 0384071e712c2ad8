"""Stores that are filled once and shared by the tests that only read."""

import pytest

from tests.fakes import records


@pytest.fixture(scope="session")
def stored_run(tmp_path_factory):
    """A stored run of the whole fake sweep; read only."""
    return records.fill_store(tmp_path_factory.mktemp("store"))
