"""The report: the same bytes each time, no network, nothing hostile alive, nothing left out."""

import dataclasses
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from tests.fakes import measured, records
from tests.fakes.records import points_of
from workbench.errors import UsageError
from workbench.fronts import pareto
from workbench.pareto import DEFAULT_X, DEFAULT_Y
from workbench.report import render_html, report, report_files
from workbench.report_content import Drawn, gather
from workbench.report_tables import MOST_ROWS, point_table
from workbench.svg_front import front_svg

PLOTLY_FREE = {f"workbench.figures_{name}" for name in ("text", "facts", "labels", "ratios")}


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
    heads = ("The front", "Invalid, failed", "All points", "Definitions", "Environment")
    order = ["indicative", "<h1>", "Most output per device", "<svg", 'id="front"']
    order += [f"<h2>{head}" for head in (*heads, "Reproduce", "Limits")]
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
    assert {name for name in paths if not name.startswith("llm-d/")} == {
        "report.html", "report.md", "points.csv", "requests.parquet", "plan.lock.yaml",
        "environment.json", "SHA256SUMS",
    }  # fmt: skip
    page = paths["report.html"].read_text()
    assert ("No valid point was measured" in page) == (not any(i.state == "ok" for i in items))
    assert "nan" not in " ".join(Tags(page).texts[-200:]).lower().split()


def test_without_plotly_the_report_says_so_and_is_whole_otherwise(stored_run, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("workbench.figures")]:
        if name not in PLOTLY_FREE:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    files = report_files(stored_run)
    assert "plotly is not installed" in files["report.html"].decode()
    assert "<svg" in files["report.html"].decode()
    assert "plotly is not installed" in files["report.md"].decode()
    assert "Most output per device" in files["report.html"].decode()


def test_unlike_workloads_get_verdicts_and_fronts_of_their_own(tmp_path):
    def item(name, batch):
        plain = records.record(batch_size=batch)
        point = dataclasses.replace(plain.point, workload=plain.point.workload | {"name": name})
        return dataclasses.replace(plain, point=point, trial_id=f"{name}{batch}")

    items = [item(name, batch) for name in ("chat", "code") for batch in (1, 4)]
    content = gather([records.fill_store(tmp_path, items)])
    for name in ("chat", "code"):
        said = [verdict for verdict in content.verdicts if f"of name={name}:" in verdict]
        assert len(said) == 3
    place = content.front.headers.index("group")
    assert {row[place] for row in content.front.rows} == {"name=chat", "name=code"}


def test_an_unknown_format_is_refused_before_anything_is_written(stored_run, tmp_path):
    with pytest.raises(UsageError, match="'pdf'"):
        report(stored_run, tmp_path / "out", formats=["html", "pdf"])
    with pytest.raises(UsageError, match="'end'"):
        report(stored_run, tmp_path / "out", sections=["front", "end"])
    assert not (tmp_path / "out").exists()


def test_another_process_in_another_folder_gives_the_same_bytes(tmp_path, stored_run):
    """Hash seeds, the clock and the place of the store must leave no trace."""
    elsewhere = tmp_path / "some where" / stored_run.run_id
    shutil.copytree(stored_run.folder, elsewhere)
    script = (
        "import sys, hashlib; from workbench.store import Store\n"
        "from workbench.report import report_files, FORMATS, DATA\n"
        "run = Store(sys.argv[1]).run(sys.argv[2])\n"
        "print(report_files(run, (*FORMATS, *DATA))['SHA256SUMS'].decode())\n"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", script, str(folder.parent), stored_run.run_id],
            env={**os.environ, "PYTHONHASHSEED": seed, "TZ": zone},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for folder, seed, zone in (
            (stored_run.folder, "1", "UTC"),
            (elsewhere, "2", "Asia/Kolkata"),
        )
    ]
    assert told[0] == told[1]
    assert len(told[0].splitlines()) > 20


def test_a_static_report_has_no_script_and_stays_small(stored_run):
    files = report_files(stored_run, static=True)
    page = Tags(files["report.html"].decode())
    assert "script" not in page.tags
    assert "svg" in page.tags
    assert len(files["report.html"]) < 500_000


def test_a_static_report_of_ten_thousand_points_stays_small_and_says_what_it_leaves_out(stored_run):
    """Rows of a store would take minutes to write: the same tables are made from the records."""
    points = points_of(records.many_records(1_000))
    points = points.iloc[np.arange(10_000) % 1_000].reset_index(drop=True)
    table = point_table(points, most=MOST_ROWS)
    svg = front_svg(points, pareto(points, DEFAULT_X, DEFAULT_Y))
    drawn = Drawn(svg=svg, live=None, script=None, note="")
    content = gather([stored_run], static=True)
    page = render_html(dataclasses.replace(content, points=table, front=table, drawn=drawn))
    assert len(page.encode()) < 500_000
    assert "9,700 more points are in points.csv" in page


def test_sections_that_are_not_asked_for_are_left_out_and_the_first_screen_stays(stored_run):
    files = report_files(stored_run, static=True, sections=("points", "limits"))
    for name in ("report.html", "report.md"):
        text = files[name].decode()
        heads = re.findall(r"(?:<h2>|^## )([^<\n]+)", text, re.MULTILINE)
        assert heads == ["All points", "Limits"]
        assert "Most output per device" in text


def test_printing_shows_the_picture_that_needs_no_script_and_everything_that_is_folded(files):
    style = re.search(r"@media print \{.*\}\n</style>", files["report.html"].decode(), re.DOTALL)
    assert style is not None
    assert ".interactive .static { display: block; }" in style[0]
    assert "details-content" in style[0]


def test_repeats_carry_a_verdict_with_its_interval_and_one_repeat_none(tmp_path):
    items = [
        one
        for draft, speed in ((0, 1.0), (5, 1.3))
        for one in measured.repeats(4, speed=speed, noise=0.005, seed=draft, draft_length=draft)
    ]
    said = gather([records.fill_store(tmp_path / "four", items)], static=True).verdicts[0]
    found = re.fullmatch(
        r"Draft length 5 against 0, Output throughput per device: "
        r"faster by ([\d.]+) % \(([\d.]+) to ([\d.]+)\)\.",
        said,
    )
    assert found is not None, said
    value, low, high = map(float, found.groups())
    assert low < value < high
    assert 25 < value < 35
    single = [one for one in items if one.repeat == 0]
    said = gather([records.fill_store(tmp_path / "one", single)], static=True).verdicts[0]
    assert "one repeat, so no verdict" in said


def test_two_runs_share_one_report_that_tells_what_differs_before_any_difference(tmp_path):
    runs = [
        records.fill_store(tmp_path, items, name=name)
        for name, items in (
            ("before", measured.repeats(3, seed=0)),
            ("after", measured.repeats(3, seed=0, speed=1.2)),
        )
    ]
    files = report_files(runs, ("html", "md", "csv", "parquet"))
    page = files["report.html"].decode()
    assert f"{runs[1].run_id} (B) against {runs[0].run_id} (A)" in page
    assert "B is faster by" in page
    assert "nothing that is known differs" in page.lower()
    assert page.index("that is known differs") < page.index("<svg")
    assert {f"{run.run_id}.plan.lock.yaml" for run in runs} <= set(files)
    assert len(pd.read_csv(io.BytesIO(files["points.csv"]))) == 6
    requests = pd.read_parquet(io.BytesIO(files["requests.parquet"]))
    assert set(requests["run_id"]) == {run.run_id for run in runs}


def test_runs_that_may_not_be_compared_get_no_delta(tmp_path):
    manifest = records.environment()
    runs = [
        records.fill_store(
            tmp_path,
            measured.repeats(3),
            name=name,
            environment={**manifest, "tokenizer_hashes": [f"{name} tokens"]},
        )
        for name in ("here", "there")
    ]
    content = gather(runs, static=True)
    assert any(row[1] == "block" for row in content.differences.rows)
    assert "no difference is told" in content.verdicts[0]
    assert not any("faster" in verdict for verdict in content.verdicts)


def test_a_run_given_twice_is_refused(stored_run):
    with pytest.raises(UsageError, match="twice"):
        report_files([stored_run, stored_run])
    with pytest.raises(UsageError, match="at least one"):
        report_files([])
