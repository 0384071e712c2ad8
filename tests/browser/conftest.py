"""A real browser on real pages: Debian's chromium, driven by playwright."""

import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest

from dashboards.__main__ import command
from tests.fakes import records

BROWSERS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
START_LIMIT_S = 90


@pytest.fixture(scope="module")
def browser():
    """A running chromium; without one the browser tests are skipped with the reason.

    Not kept for the session: while it runs, so does an event loop, and no test may start another.
    """
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no browser on this machine: none of {', '.join(BROWSERS)} is on the PATH")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=found, args=FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="session")
def demo_store(tmp_path_factory):
    """A store like the demo's, with an older run in which everything failed."""
    folder = tmp_path_factory.mktemp("demo")
    records.fill_store(folder, records.failed_records(), name="older")
    records.fill_store(folder)
    return folder


@pytest.fixture(scope="session")
def serve():
    """serve(store) -> the address of its pages, one server a store."""
    running, addresses = [], {}

    def started(store):
        if store not in addresses:
            port = free_port()
            running.append(subprocess.Popen(command(store, port), stdout=subprocess.DEVNULL))
            addresses[store] = f"http://127.0.0.1:{port}"
            wait_until_up(addresses[store])
        return addresses[store]

    yield started
    for process in running:
        process.terminate()
        process.wait(timeout=20)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until_up(address):
    limit = time.monotonic() + START_LIMIT_S
    while time.monotonic() < limit:
        try:
            urllib.request.urlopen(f"{address}/_stcore/health", timeout=2).read()
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
        else:
            return
    pytest.fail(f"no page at {address} after {START_LIMIT_S} s")
