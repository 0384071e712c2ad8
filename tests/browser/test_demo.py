"""`workbench demo` from nothing to pages, as `make demo` runs it."""

import json
import subprocess
import sys

import pytest

import workbench as wb
from experiments.foreign_cpu import OTHER_WORK

LIMIT_S = 280


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The finished command and its store."""
    store = tmp_path_factory.mktemp("demo") / "results"
    command = [sys.executable, "-m", "workbench", "demo", "--store", str(store), "--json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S), store


@pytest.mark.timeout(LIMIT_S + 20)
def test_the_demo_measures_what_it_says_and_ends_with_front_report_and_command(demo):
    done, store = demo
    assert done.returncode == 0, done.stderr
    run = wb.Store(store).runs()[0]
    assert run.planned == 24
    assert sum(run.counts.values()) == 24
    own = [label for label in run.labels if label != OTHER_WORK]  # of this host
    assert own == ["indicative"]
    points = wb.Store(store).run(run.run_id).points()
    varied = ("batch_size", "draft_length", "replay_keep_tokens", "data_parallel_size")
    assert all(points[f"axis.{name}"].nunique() > 1 for name in varied)
    assert points["valid"].mean() > 0.5
    drafted = points[points["axis.draft_length"] == 5]
    assert (drafted["acceptance_length"] > 1).all()
    assert "Pareto front" in done.stdout
    assert f"workbench dashboard --store {store}" in done.stdout
    json.loads(done.stdout.splitlines()[-1])
    report = store / run.run_id / "report" / "report.html"
    assert str(report) in done.stdout
    assert run.run_id in report.read_text(encoding="utf-8")


@pytest.mark.browser
@pytest.mark.parametrize("path", ["", "pareto", "run"])
def test_a_page_opens_on_what_the_demo_measured(demo, visit, path):
    opened = visit(demo[1], path)
    opened.check()
    assert "indicative" in opened.page.inner_text("body")
