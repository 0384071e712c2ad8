"""What pages do when they are used: orders, choices, prices, files; and while a run is written."""

import dataclasses
import io
import zipfile

import pytest

import workbench as wb
from tests.dashboards.conftest import MARKUP, shown
from tests.fakes import environments, progress, records
from workbench.report import bundle, report_files


@pytest.fixture
def running(tmp_path):
    """A run that is being written, with a trial in flight; yields its folder's store and writer."""
    with wb.Store(tmp_path).create(records.facts(24)) as writer:
        writer.append(records.record())
        yield tmp_path, writer


def test_the_live_page_shows_the_trial_in_flight_its_devices_and_the_time_left(open_page, running):
    store, writer = running
    progress.write(writer.run.folder, progress.progress())
    app = open_page(store, "live")
    text = shown(app)
    assert "Measuring demo, about 12 min left" in text
    assert "16 in flight, draft length 5; repeat 0; attempt 2; under load" in text
    assert "sw_power_cap" in text
    assert "the engine is up" in text
    assert app.get("plotly_chart")


def test_stop_and_skip_leave_orders_for_whoever_measures(open_page, running):
    store, writer = running
    progress.write(writer.run.folder, progress.progress())
    app = open_page(store, "live")
    app.button(key="live.stop").click().run()
    app.button(key="live.skip").click().run()
    assert not app.exception
    orders = {path.name for path in (writer.run.folder / "orders").iterdir()}
    assert orders == {"stop", "skip-0123456789abcdef"}


def test_between_trials_there_is_nothing_to_skip(open_page, running):
    store, writer = running
    progress.write(writer.run.folder, progress.progress(flying=False))
    app = open_page(store, "live")
    assert app.button(key="live.skip").disabled
    assert "No trial is in flight now." in shown(app)


def test_hostile_words_of_a_running_trial_stay_text(open_page, running):
    store, writer = running
    progress.write(writer.run.folder, progress.progress(records.HOSTILE[0]))
    text = shown(open_page(store, "live"), MARKUP)
    assert "&lt;img" in text
    assert "<img" not in text


def test_a_run_that_never_said_what_it_does_is_followed_by_its_trials(open_page, running):
    text = shown(open_page(running[0], "live"))
    assert "Measuring demo" in text
    assert "1 of 24 trials stored" in text


def two_runs(folder, *, trials=None, **second):
    """The same sweep twice, the second on another host."""
    runs = []
    for environment in (environments.GPU, second.pop("environment", environments.GPU)):
        facts = dataclasses.replace(records.facts(24), environment=environment)
        with wb.Store(folder).create(facts) as writer:
            for trial in trials or records.sweep_records():
                writer.append(trial)
        runs.append(writer.run.run_id)
    return runs


def test_a_comparison_that_is_blocked_shows_no_delta_until_the_difference_is_accepted(
    open_page, tmp_path
):
    a, b = two_runs(tmp_path, environment=environments.changed("driver", "999.1"))
    app = open_page(tmp_path, "compare", a=a, b=b)
    assert not app.exception
    assert "No delta is shown, because these differ: driver" in shown(app)
    assert "Every matched point" not in [box.label for box in app.selectbox]
    assert not app.get("plotly_chart")
    app = open_page(tmp_path, "compare", a=a, b=b, accept="driver")
    assert not app.exception
    assert "No delta is shown" not in shown(app)
    assert app.get("plotly_chart")


def test_a_pair_that_may_be_compared_is_shown_before_one_that_is_blocked(open_page, tmp_path):
    a, b = two_runs(tmp_path, environment=environments.changed("driver", "999.1"))
    app = open_page(tmp_path, "compare")
    assert not app.exception
    text = shown(app)
    assert "No delta is shown" not in text
    assert f"{b} draft_length=0" in text
    assert f"{b} draft_length=5" in text
    assert a not in text


def test_the_first_pair_is_shown_where_none_may_be_compared(open_page, tmp_path):
    changed = environments.changed("driver", "999.1")
    a, b = two_runs(tmp_path, environment=changed, trials=[records.record()])
    text = shown(open_page(tmp_path, "compare"))
    assert "No delta is shown, because these differ: driver" in text
    assert a in text
    assert b in text


def test_two_settings_of_one_run_are_compared_at_first(open_page, stores):
    app = open_page("demo", "compare")
    text = shown(app)
    assert "draft_length=0" in text
    assert "draft_length=5" in text
    assert "chosen to differ" in text


def test_the_overview_says_what_changed_since_the_run_of_the_plan_before(open_page, tmp_path):
    a, b = two_runs(tmp_path)
    text = shown(open_page(tmp_path, "overview"))
    assert "What changed since the run of this plan before" in text
    assert f"compare?a={a}&amp;b={b}" in text


def test_manifests_that_differ_are_told_fact_by_fact(open_page, tmp_path):
    two_runs(tmp_path, environment=environments.changed("driver", "999.1"))
    text = shown(open_page(tmp_path, "environment"))
    assert "1 of" in text
    assert "facts differ between 2 runs" in text
    assert "999.1" in text


def test_a_trend_links_each_run_to_the_comparison_with_the_one_before(open_page, tmp_path):
    a, b = two_runs(tmp_path)
    text = shown(open_page(tmp_path, "trends"))
    assert f"compare?a={a}&amp;b={b}" in text
    assert "2 runs of the plan demo" in text


def priced(**facts):
    """The sweep on a device that has a price."""
    point = records.record().point
    on_device = dataclasses.replace(point, engine=point.engine | {"accelerator": "cuda"})
    return [dataclasses.replace(records.record(), point=on_device, **facts)]


def test_a_cost_is_by_the_table_in_the_tier_that_is_chosen(open_page, tmp_path):
    facts = dataclasses.replace(records.facts(1), environment=environments.GPU)
    with wb.Store(tmp_path).create(facts) as writer:
        writer.append(priced()[0])
    costs = {}
    for tier in ("rental", "neocloud"):
        app = open_page(tmp_path, "energy_and_cost", tier=tier)
        assert not app.exception
        assert app.get("plotly_chart")
        costs[tier] = shown(app)
    assert ": rental" in str([box.label for box in open_page(
        tmp_path, "energy_and_cost").expander])  # fmt: skip
    assert costs["rental"] != costs["neocloud"]


def test_a_processor_has_no_cost_and_says_so(open_page, stores):
    text = shown(open_page("demo", "energy_and_cost"))
    assert "None: " in text
    assert "no device counts energy here" in text


def test_the_files_of_a_report_are_one_archive_with_the_same_bytes_every_time(stores):
    (summary,) = wb.Store(stores["demo"]).runs()
    files = report_files(wb.Store(stores["demo"]).run(summary.run_id), ("md", "csv"))
    assert bundle(files) == bundle(dict(reversed(files.items())))
    with zipfile.ZipFile(io.BytesIO(bundle(files))) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == files


def test_the_report_page_shows_what_the_report_says(open_page):
    app = open_page("demo", "report", formats="md")
    text = shown(app)
    assert "Does drafting pay on one host?" in text
    names = {button.proto.label for button in app.get("download_button")}
    assert {"All files (zip)", "report.md", "SHA256SUMS"} <= names
    assert "report.html" not in names


def test_the_chosen_trial_can_be_compared_and_reproduced_from_beside_the_front(open_page, stores):
    (summary,) = wb.Store(stores["demo"]).runs()
    trial = wb.Store(stores["demo"]).run(summary.run_id).points()["trial_id"].iloc[0]
    app = open_page("demo", "pareto", trial=trial)
    assert any("product:" in item.value and "batch_size:" in item.value for item in app.code)


@pytest.mark.parametrize("page", ["latency", "sweep_explorer", "speculation", "replay_and_cache"])
def test_a_page_on_a_run_that_is_being_written_shows_what_is_stored(open_page, running, page):
    store, writer = running
    for trial in records.sweep_records()[1:4]:
        writer.append(trial)
    app = open_page(store, page)
    assert not app.exception
    assert "running" in shown(app)


def test_a_latency_of_another_trial_is_drawn_beside(open_page, stores):
    (summary,) = wb.Store(stores["demo"]).runs()
    points = wb.Store(stores["demo"]).run(summary.run_id).points()
    first, second = points.loc[points["valid"], "trial_id"].iloc[:2]
    app = open_page("demo", "latency", trial=first, beside=second, family="tpot_s")
    spec = app.get("plotly_chart")[0].proto.spec
    assert "in the first of 2 trials" in spec.replace("<br>", " ")
