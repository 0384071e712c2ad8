"""The report: the same bytes each time, no network, nothing hostile alive, nothing left out."""

import dataclasses
import hashlib
import re
import sys
from html.parser import HTMLParser

import pandas as pd
import pytest
import yaml

from tests.fakes import records
from workbench.errors import UsageError
from workbench.report import report, report_files
from workbench.report_content import gather


class Tags(HTMLParser):
    """Tags, attributes and text of a page as a browser sees them."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.texts = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture(scope="module")
def files(stored_run):
    return report_files(stored_run)


def test_the_same_run_gives_the_same_bytes(stored_run, files):
    assert report_files(stored_run) == files


def test_the_page_asks_no_network_for_anything(files):
    page = Tags(files["report.html"].decode())
    for name, value in page.attributes:
        if name in ("src", "href", "action", "data"):
            assert not re.match(r"\s*(https?:)?//", value or ""), (name, value)
    assert "link" not in page.tags
    assert len(files["report.html"]) < 6_000_000
    assert files["report.html"].count(b"plotly.js v") <= 1


def test_the_first_screen_is_question_verdict_and_front(files):
    page = files["report.html"].decode()
    order = ["indicative", "<h1>", "Most output per device", "id=\"front\"", "<h2>The front",
             "<h2>Invalid, failed", "<h2>All points", "<h2>Definitions", "<h2>Environment",
             "<h2>Reproduce", "<h2>Limits"]  # fmt: skip
    places = [page.index(mark) for mark in order]
    assert places == sorted(places)


@pytest.mark.parametrize("name", ["report.html", "report.md"])
def test_every_bad_point_is_listed_with_its_reason(files, name):
    text = files[name].decode().replace("\\", "")
    for reason in ("out of memory", "2 of 16 requests failed", "a smaller batch ran out"):
        assert reason in text
    for words in ("within-run only", "n=64", "workbench run plan.lock.yaml", "random weights"):
        assert words in text


def test_points_have_one_name_and_intervals_say_what_they_cover(files):
    page = files["report.html"].decode()
    assert "within-run" in page
    assert "16 in flight, 1 replica, draft length 5, 128 keep tokens" in page  # of the failed one
    assert "batch_size=" not in page.partition("<h2>Environment")[0]
    assert page.index("<details>") < page.index("cpu_logical") < page.index("</details>")


def test_the_locked_plan_and_the_checksums_are_those_of_the_files(stored_run, tmp_path):
    paths = report(stored_run, tmp_path / "out")
    assert yaml.safe_load(paths["plan.lock.yaml"].read_text()) == stored_run.plan
    for line in paths["SHA256SUMS"].read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256(paths[name].read_bytes()).hexdigest() == digest


def test_the_csv_holds_every_point_and_runs_no_formula(tmp_path):
    run = records.fill_store(tmp_path, records.hostile_records())
    path = report(run, tmp_path / "out", formats=["csv"])["points.csv"]
    table = pd.read_csv(path)
    assert len(table) == len(records.hostile_records())
    assert not any(str(text).startswith(("=", "@")) for text in table["reason"])
    assert not (tmp_path / "out/report.html").exists()


@pytest.mark.parametrize("text", [*records.HOSTILE, records.UNICODE])
def test_a_hostile_text_is_shown_and_never_runs(tmp_path, text):
    plain = report_files(records.fill_store(tmp_path / "plain", [records.record()]))
    run = records.fill_store(
        tmp_path / "hostile",
        [records.record(), records.with_text(text, batch_size=4)],
        name=text,
        question=text,
    )
    hostile = report_files(run)
    before, after = (Tags(f["report.html"].decode()) for f in (plain, hostile))
    assert set(after.tags) == set(before.tags)
    assert after.tags.count("script") == before.tags.count("script")
    assert not [name for name, _ in after.attributes if name.startswith("on")]
    assert " ".join(text.split()) in " ".join("".join(after.texts).split())
    markdown = hostile["report.md"].decode()
    assert "<img" not in markdown
    assert "<script" not in markdown


@pytest.mark.parametrize(
    "items",
    [[], [records.record()], records.failed_records(), records.sweep_records()[3:4]],
    ids=["nothing", "one", "only failures", "only an invalid one"],
)
def test_every_form_is_written_whatever_the_run_holds(tmp_path, items):
    run = records.fill_store(tmp_path, items, planned=4)
    paths = report(run)
    assert set(paths) == {
        "report.html", "report.md", "points.csv", "plan.lock.yaml", "environment.json",
        "SHA256SUMS",
    }  # fmt: skip
    page = paths["report.html"].read_text()
    assert ("No valid point was measured" in page) == (not any(i.state == "ok" for i in items))
    assert "nan" not in " ".join(Tags(page).texts[-200:]).lower().split()


def test_without_plotly_the_report_says_so_and_is_whole_otherwise(stored_run, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("workbench.figures")]:
        if name != "workbench.figures_text":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    files = report_files(stored_run)
    assert "plotly is not installed" in files["report.html"].decode()
    assert "plotly is not installed" in files["report.md"].decode()
    assert "Most output per device" in files["report.html"].decode()


def test_unlike_workloads_get_verdicts_and_fronts_of_their_own(tmp_path):
    def item(name, batch):
        plain = records.record(batch_size=batch)
        point = dataclasses.replace(plain.point, workload=plain.point.workload | {"name": name})
        return dataclasses.replace(plain, point=point, trial_id=f"{name}{batch}")

    items = [item(name, batch) for name in ("chat", "code") for batch in (1, 4)]
    content = gather(records.fill_store(tmp_path, items))
    for name in ("chat", "code"):
        said = [verdict for verdict in content.verdicts if f"of name={name}:" in verdict]
        assert len(said) == 3
    place = content.front.headers.index("group")
    assert {row[place] for row in content.front.rows} == {"name=chat", "name=code"}


def test_an_unknown_format_is_refused_before_anything_is_written(stored_run, tmp_path):
    with pytest.raises(UsageError, match="'pdf'"):
        report(stored_run, tmp_path / "out", formats=["html", "pdf"])
    assert not (tmp_path / "out").exists()
