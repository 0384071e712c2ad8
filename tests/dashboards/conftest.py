"""Pages under Streamlit's own test harness, on stores that never ran."""

import sys
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

import workbench as wb
from dashboards.app import GROUPS
from dashboards.parts import TOUCH
from tests.fakes import records
from workbench.index import Index
from workbench.trial_files import document

APP = Path(__file__).parents[2] / "dashboards" / "app.py"
PAGES = tuple(name for names in GROUPS.values() for name in names)
MANY = [pytest.param(10_000, marks=pytest.mark.full), 1_200]  # above CROWDED_FROM


@pytest.fixture(scope="session")
def stores(tmp_path_factory):
    """Name -> store folder; the kinds of store that every page must bear."""
    base = tmp_path_factory.mktemp("stores")
    (base / "empty").mkdir()
    records.fill_store(base / "demo")
    records.fill_store(base / "failed", records.failed_records())
    records.fill_store(base / "hostile", records.hostile_records(), question=records.HOSTILE[0])
    records.fill_store(base / "unicode", records.unicode_records(), question=records.UNICODE)
    records.fill_store(base / "untouched", [], planned=24)
    return {path.name: path for path in base.iterdir()}


@pytest.fixture(scope="session", params=MANY)
def big_store(request, tmp_path_factory):
    """A store and its count of trials, indexed in one transaction: so many fsyncs take minutes."""
    count = request.param
    folder = tmp_path_factory.mktemp("big")
    few = [document(trial) for trial in records.sweep_records()]
    many = [_numbered(few[k % len(few)], k) for k in range(count)]
    with wb.Store(folder).create(records.facts(count)) as writer:
        run = writer.run
    for found in many:
        (run.folder / "trials" / found["trial_id"]).mkdir()
    Index(folder).add(run.run_id, many)
    return folder, count


def _numbered(found, number):
    """The trial as a point of its own: no repeat of another."""
    point = found["point"] | {"axes": found["point"]["axes"] | {"number": number}}
    return {**found, "trial_id": f"{number:016x}", "point": point}


@pytest.fixture
def open_page(stores, monkeypatch):
    """open_page(store name or folder, page, **query) -> the page after its first run."""

    def opened(store, page, **query):
        folder = stores.get(store, store)
        monkeypatch.setattr(sys, "argv", ["app.py", "--store", str(folder)])
        st.cache_data.clear()
        app = AppTest.from_file(str(APP), default_timeout=60)
        app.run()
        app.query_params.update(query)
        if page != "overview":
            app.switch_page(f"views/{page}.py")
        return app.run()

    return opened


def walk(store, skipped=()):
    """Every page of a store in turn, in one visit: its name and what it shows."""
    before, sys.argv = sys.argv, ["app.py", "--store", str(store)]
    try:
        st.cache_data.clear()
        app = AppTest.from_file(str(APP), default_timeout=60).run()
        yield "overview", app
        for page in PAGES:
            if page != "overview" and page not in skipped:
                app.query_params.clear()
                app.switch_page(f"views/{page}.py")
                yield page, app.run()
    finally:
        sys.argv = before


MARKUP = ("html", "markdown", "caption", "error", "warning")  # what a browser interprets


def shown(app, kinds=(*MARKUP, "code")):
    """Every text of the page, code blocks (which a browser shows literally) included.

    The script that the pages themselves bring is left out.
    """
    texts = "\n".join(str(_body(item)) for kind in kinds for item in app.get(kind))
    return texts.replace(TOUCH, "")


def _body(item):
    return getattr(item.proto, "body", None) or getattr(item, "value", "")
