"""Every page on every kind of store: it opens, says what is there, and acts on nothing."""

import dataclasses
import json
from html import escape
from urllib.parse import parse_qsl

import pytest
import yaml

import workbench as wb
from dashboards.metric_view import doubled, numbers_table
from tests.dashboards.conftest import MARKUP, PAGES, shown, walk
from tests.fakes import records
from workbench.figures import metric_table
from workbench.provenance import manifest

UNLABELLED = ("environment", "imports")  # pages that show no number of a run
KINDS = ("empty", "untouched", "demo", "failed", "hostile", "unicode")


@pytest.fixture(scope="session")
def every_page(stores):
    """every_page(kind) -> page -> its texts on that kind of store: each opened once."""
    seen = {}

    def opened(kind):
        if kind not in seen:
            seen[kind] = dict(texts_of_pages(stores[kind]))
        return seen[kind]

    return opened


def texts_of_pages(store):
    """Each page with what a browser interprets of it, and with all it shows."""
    for page, app in walk(store):
        assert not app.exception, page
        assert not app.error, page
        yield page, (shown(app, MARKUP), shown(app))


@pytest.mark.parametrize("kind", KINDS)
def test_every_page_opens_on_every_kind_of_store(every_page, kind):
    found = every_page(kind)
    assert set(found) == set(PAGES)
    assert all(text for _, text in found.values())


def test_an_empty_store_names_the_command_that_fills_it(every_page):
    for page, (_, text) in every_page("empty").items():
        command = "workbench import" if page == "imports" else "workbench demo --store"
        assert command in text, page


def test_every_page_of_numbers_carries_the_labels_of_its_run(every_page):
    for page, (_, text) in every_page("demo").items():
        assert page in UNLABELLED or all(label in text for label in records.LABELS), page


def test_a_hostile_string_stays_text_on_every_page(every_page):
    for page, (markup, _) in every_page("hostile").items():
        assert "<img" not in markup, page
        assert "<script" not in markup, page
        assert page in UNLABELLED or "&lt;img" in markup, page


@pytest.mark.parametrize("kind", ["hostile", "unicode", "failed", "demo"])
def test_every_trial_of_a_store_can_be_opened(open_page, stores, kind):
    (summary,) = wb.Store(stores[kind]).runs()
    points = wb.Store(stores[kind]).run(summary.run_id).points()
    seen = points.drop_duplicates(["state", "reason"])["trial_id"]
    for trial_id in seen:
        app = open_page(kind, "run", run=summary.run_id, trial=trial_id)
        text = shown(app)
        assert not app.exception
        assert trial_id in text
        assert "<img" not in shown(app, MARKUP)
        assert "<script" not in shown(app, MARKUP)


def test_a_failed_run_says_what_failed_and_why(open_page):
    for page in ("overview", "pareto"):
        assert "No valid trial in 2 trials: 2 failed" in shown(open_page("failed", page))
    assert records.REASONS[records.TrialState.FAILED] in shown(open_page("failed", "pareto"))


def test_a_missing_number_is_a_dash_with_its_reason(open_page):
    assert "no device counts energy here" in shown(open_page("demo", "overview"))


def test_a_downloaded_figure_carries_the_labels_of_its_run(open_page, stores):
    (summary,) = wb.Store(stores["demo"]).runs()
    trial = wb.Store(stores["demo"]).run(summary.run_id).points()["trial_id"].iloc[0]
    for page, query in (("overview", {}), ("pareto", {}), ("run", {"trial": trial})):
        charts = open_page("demo", page, **query).get("plotly_chart")
        assert charts
        for chart in charts:
            title = json.loads(chart.proto.spec)["layout"]["title"]["text"]
            assert all(label in title.replace("<br>", " ") for label in records.LABELS)


def test_unlike_workloads_have_tiles_and_ranks_of_their_own(open_page, tmp_path):
    trials = []
    for name in ("short", "long"):
        for size in (1, 4):
            plain = records.record(batch_size=size, note=name)
            point = dataclasses.replace(plain.point, workload={"kind": "trace", "name": name})
            trials.append(dataclasses.replace(plain, point=point))
    records.fill_store(tmp_path, trials)
    text = shown(open_page(tmp_path, "overview"))
    assert text.count("Best throughput per device") == 2
    assert text.index("long") < text.index("short")
    app = open_page(tmp_path, "pareto")
    assert app.dataframe[0].value["Kind"].tolist() == ["long"] * 2 + ["short"] * 2


def test_repeats_are_one_point_on_the_front_and_trials_of_their_own_on_the_run_page(
    open_page, tmp_path
):
    trials = [records.record(batch_size=size, repeat=n) for size in (1, 4) for n in range(3)]
    run = records.fill_store(tmp_path, trials)
    assert "over 3 repeats, n=" in shown(open_page(tmp_path, "overview"))
    app = open_page(tmp_path, "pareto", trial=run.points()["trial_id"].iloc[0])
    assert "2 valid points of 2" in shown(app)
    assert "The point is the mean of 3 repeats" in shown(app)
    spec = json.loads(app.get("plotly_chart")[0].proto.spec)
    assert "means of 3 repeats" in spec["layout"]["title"]["text"].replace("<br>", " ")
    hovers = [text for trace in spec["data"] for text in trace.get("hovertext", ())]
    assert all("mean of 3 repeats" in text for text in hovers)
    assert len(hovers) == 2
    text = shown(open_page(tmp_path, "run"))
    assert all(f"1 in flight, repeat {n}" in text for n in range(3))


def test_what_was_read_of_a_store_is_not_read_again(open_page, tmp_path):
    run = records.fill_store(tmp_path)
    assert "24 of 24 trials stored" in shown(open_page(tmp_path, "overview"))
    for path in [tmp_path / "index.sqlite", *run.folder.glob("trials/*/trial.json")]:
        path.unlink()
    assert "24 of 24 trials stored" in shown(open_page(tmp_path, "overview"))


def test_every_missing_fact_of_a_host_is_told_with_its_reason(open_page, tmp_path):
    environment = manifest(settings={}, folder=tmp_path)
    facts = dataclasses.replace(records.facts(0), environment=environment)
    wb.Store(tmp_path).create(facts).close()
    text = shown(open_page(tmp_path, "run"))
    missing = [name for name, value in environment.items() if value is None]
    assert missing
    assert "no reason was recorded" not in text
    for name in missing:
        assert escape(environment["reasons"][name]) in text


def test_the_trial_of_the_address_is_beside_the_front(open_page, stores):
    (summary,) = wb.Store(stores["demo"]).runs()
    trial = wb.Store(stores["demo"]).run(summary.run_id).points()["trial_id"].iloc[0]
    app = open_page("demo", "pareto", trial=trial)
    assert trial in shown(app)
    assert "Choose a trial" in shown(open_page("demo", "pareto"))


def test_axes_and_filters_of_the_address_are_applied(open_page):
    app = open_page("demo", "pareto", x="ttft_s_p50", draft_length="5")
    assert app.selectbox(key="choose.x").value == "ttft_s_p50"
    assert app.multiselect(key="some.draft_length").value == ["5"]
    assert "12 points hidden by the filters" in shown(app)


def test_a_choice_goes_into_the_address_and_the_default_does_not(open_page):
    app = open_page("demo", "pareto")
    assert "y" not in app.query_params
    app.selectbox(key="choose.y").select("output_tok_s").run()
    assert not app.exception
    assert app.query_params["y"] in ("output_tok_s", ["output_tok_s"])


def test_the_copied_link_shows_the_same_after_a_newer_run(open_page, tmp_path):
    older = records.fill_store(tmp_path, name="older")
    links = {page: copied_link(open_page(tmp_path, page)) for page in ("overview", "pareto")}
    assert {"x", "y", "group"} <= set(links["pareto"])
    newer = records.fill_store(tmp_path, records.failed_records())
    assert newer.run_id in shown(open_page(tmp_path, "overview"))
    for page, query in links.items():
        assert query["run"] == older.run_id
        drawn = open_page(tmp_path, page, **query).get("plotly_chart")
        assert "not drawn" in drawn[0].proto.spec


def copied_link(app):
    """The parameters of the link below the first figure."""
    link = next(item.value for item in app.code if "run=" in item.value)
    return dict(parse_qsl(link.partition("?")[2], keep_blank_values=True))


def test_a_trial_without_its_run_opens_the_run_that_holds_it(open_page, tmp_path):
    older = records.fill_store(tmp_path, [records.record(batch_size=4)])
    newer = records.fill_store(tmp_path, [records.record(batch_size=16)])
    (trial,) = older.trial_ids()
    for page in ("pareto", "run"):
        app = open_page(tmp_path, page, trial=trial)
        assert app.selectbox(key="choose.run").value == older.run_id
        assert trial in shown(app)
        app = open_page(tmp_path, page, trial=trial, run=newer.run_id)
        assert "not stored in this run" in shown(app)


def test_a_target_of_the_address_is_applied(open_page):
    app = open_page("demo", "pareto", target="100")
    assert app.select_slider(key="pareto.target").value == 100.0
    assert not open_page("demo", "pareto", target="none").exception


def test_a_gate_that_was_not_judged_is_neither_passed_nor_failed(open_page, tmp_path):
    plain = records.record()
    first, last = plain.gates
    gates = (first, dataclasses.replace(last, judged=False, message="not judged: 3 requests"))
    run = records.fill_store(tmp_path, [dataclasses.replace(plain, gates=gates)])
    (trial,) = run.trial_ids()
    text = shown(open_page(tmp_path, "pareto", trial=trial))
    assert "1 of 1 judged gate passed; 1 not judged" in text
    text = shown(open_page(tmp_path, "run", trial=trial))
    assert 'wb-pill calm">not judged' in text
    assert text.count('wb-pill good">passed') == 1


def test_an_address_can_ask_for_no_grouping(open_page):
    app = open_page("demo", "pareto")
    assert app.selectbox(key="choose.group").value == "axis.draft_length"
    app = open_page("demo", "pareto", group="")
    assert app.selectbox(key="choose.group").value == ""
    assert not app.exception


def test_a_target_leaves_only_trials_that_reach_it(open_page):
    app = open_page("demo", "pareto")
    mark = next(mark for mark in app.select_slider(key="pareto.target").options if mark != "any")
    assert float(mark) < 100
    app = open_page("demo", "pareto", target="100")
    assert "At 100 tok/s/user: draft length 0:" in shown(app)
    assert "P(best at the target)" in app.dataframe[0].value
    (table,) = app.dataframe
    reached = [float(text) for text in table.value["tok/s/user"]]
    assert reached
    assert min(reached) >= 100


def test_an_unknown_run_or_trial_is_told_and_something_is_shown(open_page):
    app = open_page("demo", "run", run="no-such-run")
    assert "newest is shown" in shown(app)
    app = open_page("demo", "run", trial="no-such-trial")
    assert "not stored in this run" in shown(app)
    assert not app.exception


def test_a_run_written_by_a_newer_version_is_told_beside_the_others(open_page, tmp_path):
    records.fill_store(tmp_path)
    newer = records.fill_store(tmp_path, records.failed_records())
    facts = (newer.folder / "run.json").read_text()
    (newer.folder / "run.json").write_text(
        facts.replace('"format_version": 1', '"format_version": 99')
    )
    app = open_page(tmp_path, "overview")
    assert "A run cannot be read" in shown(app)
    assert not app.exception


def test_a_run_that_goes_on_shows_the_trials_stored_since(open_page, tmp_path):
    trials = records.sweep_records()
    store = wb.Store(tmp_path)
    with store.create(records.facts(len(trials))) as writer:
        writer.append(trials[0])
        app = open_page(tmp_path, "run")
        assert "1 of 24 trials stored" in shown(app)
        assert "running" in shown(app)
        for trial in trials[1:3]:
            writer.append(trial)
        assert "3 of 24 trials stored" in shown(app.run())
    assert not app.exception


def test_very_many_trials_open_on_every_page(big_store):
    store, count = big_store
    told = {
        "overview": f"{count:,} of {count:,} trials stored",
        "pareto": f"valid points of {count:,}, the first 200 shown",
        "run": f"The first 200 of {count:,} trials.",
    }
    hollow = {
        "latency",
        "replay_and_cache",
        "energy_and_cost",
    }  # they read trials, and these have no files
    for page, app in walk(store, skipped=hollow):
        assert not app.exception, page
        assert not app.error, page
        assert told.get(page, "") in shown(app), page


def test_trials_are_in_the_order_of_their_axes_with_the_reason_below_the_name(open_page, tmp_path):
    sizes = (16, 1, 4)
    trials = [records.record(batch_size=size) for size in sizes]
    bad = records.record(batch_size=2, state=records.TrialState.INVALID)
    records.fill_store(tmp_path, [*trials, bad])
    text = shown(open_page(tmp_path, "run"))
    places = [text.index(f">{size} in flight<") for size in (1, 2, 4, 16)]
    assert places == sorted(places)
    assert f"2 in flight</a><small>{bad.reason}</small>" in text


def test_a_locked_plan_is_shown_as_yaml(open_page, stores):
    (summary,) = wb.Store(stores["demo"]).runs()
    plan = wb.Store(stores["demo"]).run(summary.run_id).plan
    assert plan in [yaml.safe_load(item.value) for item in open_page("demo", "run").code]


def test_a_figure_has_its_title_as_text_of_the_page_and_keeps_its_own_for_pictures(open_page):
    app = open_page("demo", "pareto")
    title = json.loads(app.get("plotly_chart")[0].proto.spec)["layout"]["title"]["text"]
    heading = title.split("</b>")[0].removeprefix("<b>").replace("<br>", " ")
    assert f'<h2 class="wb-figure-title">{heading}</h2>' in shown(app)


def test_times_from_the_schedule_are_left_out_where_they_say_nothing_new():
    plain = records.record()
    same = plain.metrics | {"ttft_sched_s_p50": plain.metrics["ttft_s_p50"]}
    assert doubled(dataclasses.replace(plain, metrics=same)) == {"ttft_sched_s_p50"}
    other = plain.metrics | {"ttft_sched_s_p50": plain.metrics["e2e_s_p50"]}
    assert doubled(dataclasses.replace(plain, metrics=other)) == set()


@pytest.mark.parametrize(
    ("name", "value", "cells"),
    [
        ("ttft_s_p50", 0.0184, ("18.4", "ms")),
        ("e2e_s_p50", 1.25, ("1.25", "s")),
        ("memory_peak_bytes", 2_500_000_000.0, ("2.50", "GB")),
        ("completed_requests", 1234.0, ("1,234", "requests")),
    ],
)
def test_a_metric_is_shown_in_a_unit_that_is_easy_to_read(name, value, cells):
    metric = type(records.record().metrics["ttft_s_p50"])(value=value, n=8)
    trial = dataclasses.replace(records.record(), metrics={name: metric})
    table = numbers_table(metric_table(trial))
    assert all(f">{cell}</td>" in table for cell in cells)
