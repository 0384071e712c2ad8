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


PATIENCE_MS = 60_000
READY = ", ".join(
    f"{part}:visible"
    for part in (
        *(".js-plotly-plot", ".wb-empty", ".wb-table", ".wb-section", ".st-key-preview"),
        "[data-testid=stException]",
    )
)
# Streamlit asks for these below the page's own path first; the answer "not there" is expected.
PROBES = ("_stcore/health", "_stcore/host-config")


class Visit:
    """One open page and everything that went wrong on it."""

    def __init__(self, browser, address, path, width=1280, scheme="light", touch=False):
        self.context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            has_touch=touch,
            is_mobile=touch,
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.troubles = []
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("console", self._heard)
        self.page.on("response", self._answered)
        self.page.on("requestfailed", lambda asked: self.troubles.append(asked.url))
        self.page.on("dialog", lambda dialog: (self.troubles.append("alert"), dialog.dismiss()))
        self.page.goto(f"{address}/{path}")
        self.page.wait_for_selector(READY)
        self.settle()

    def _heard(self, message):
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.troubles.append(message.text)

    def _answered(self, response):
        if response.status >= 400 and not response.url.endswith(PROBES):
            self.troubles.append(f"{response.status} {response.url}")

    def settle(self):
        """Wait until the script behind the page has run."""
        self.page.wait_for_function("!document.querySelector('[data-testid=stStatusWidget]')")
        self.page.wait_for_timeout(400)

    def check(self):
        """No error box, no console error, nothing asked of another host, no sideways scroll."""
        boxes = self.page.locator("[data-testid=stException], [data-testid=stAlertContentError]")
        assert boxes.count() == 0
        assert self.troubles == []
        style = "getComputedStyle(document.querySelector('.stMainBlockContainer')).maxWidth"
        assert self.page.evaluate(style) == "1320px"
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert self.page.evaluate(wide) <= 1


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


@pytest.fixture
def visit(browser, serve):
    opened = []

    def opener(store, path, **how):
        opened.append(Visit(browser, serve(store), path, **how))
        return opened[-1]

    yield opener
    for one in opened:
        one.context.close()


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
