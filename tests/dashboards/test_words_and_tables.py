"""Numbers in words, tables of one trial, and the timeline of its requests."""

import math

import pytest

from tests.fakes import records
from workbench import figures
from workbench.figures_text import span_words, wrap
from workbench.points import points_table
from workbench.trial_files import document


@pytest.fixture(scope="module")
def points():
    return points_table("run", [document(trial) for trial in records.sweep_records()])


def test_values_are_in_the_order_of_their_numbers_and_words_come_last():
    assert figures.in_order(["auto", "16", "-1", "2", "0.5"]) == ["-1", "0.5", "2", "16", "auto"]


def test_no_word_is_left_alone_on_the_last_line_of_a_title():
    lines = wrap("one two three four five six seven eight nine ten", 44).split("<br>")
    assert lines == ["one two three four five", "six seven eight nine ten"]
    assert wrap("", 46) == ""
    assert wrap("short", 46) == "short"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "—"),
        (math.nan, "—"),
        (math.inf, "—"),
        (0.0, "0"),
        (7, "7"),
        (1234.5, "1,230"),
        (9.996, "10.0"),
        (0.012345, "0.0123"),
        (1.2e-7, "1.20e-07"),
        (-45.67, "-45.7"),
    ],
)
def test_a_number_has_three_digits_and_a_missing_one_is_a_dash(value, text):
    assert figures.number(value) == text


def test_the_timeline_draws_each_measured_request_from_sent_to_last_token(tmp_path):
    run = records.fill_store(tmp_path, [records.record(batch_size=4)])
    (trial,) = run.trial_ids()
    rows = run.requests(trial)
    figure = figures.requests_timeline(rows, (0.5, 3.0))
    waiting, receiving, first = figure.data
    measured = rows[~rows["warm_up"]].sort_values("sent_s")
    assert waiting.x[::3] == tuple(measured["sent_s"])
    assert waiting.x[1::3] == tuple(measured["chunk_time_s"].str[0])
    assert receiving.x[1::3] == tuple(measured["ended_s"])
    assert tuple(first.x) == tuple(measured["chunk_time_s"].str[0])
    assert figure.layout.shapes[0].x0 == 0.5
    assert figure.layout.margin.t >= figure.layout.meta["height"] + 15  # the word "measured" shows
    assert "4 requests; the longest wait" in figure.layout.title.text
    assert "1 warm-up request not drawn" in figure.layout.title.text


def test_a_timeline_of_failed_requests_shows_them_escaped(tmp_path):
    hostile = records.with_text(records.HOSTILE[0], batch_size=8)
    run = records.fill_store(tmp_path, [hostile])
    figure = figures.requests_timeline(run.requests(hostile.trial_id))
    failed = figure.data[-1]
    assert failed.name == "failed"
    assert "&lt;img" in failed.hovertext[0]
    assert "<img" not in figure.to_json().replace("\\u003c", "<")


def test_a_timeline_without_requests_says_so(tmp_path):
    failed = records.record(state=records.TrialState.FAILED)
    run = records.fill_store(tmp_path, [failed])
    figure = figures.requests_timeline(run.requests(failed.trial_id))
    assert "No measured request" in figure.layout.title.text


def test_the_best_is_by_the_metrics_own_direction_and_only_of_valid_trials(points):
    valid = points[points["valid"]]
    assert figures.best(points, "output_tok_s_device").value == valid["output_tok_s_device"].max()
    assert figures.best(points, "ttft_s_p50").value == valid["ttft_s_p50"].min()
    assert figures.best(points, "energy_j_token").value is None
    assert figures.best(points, "energy_j_token").reason == "no device counts energy here"
    assert figures.best(points.iloc[:0], "tok_s_user").reason == "no valid trial"


def test_a_configuration_marks_axes_and_what_is_not_the_default():
    trial = records.record(draft_length=5)
    table_of = figures.configuration_table(trial, {"dtype", "replay_mode"}).set_index("field")
    assert table_of.loc["draft_length", "mark"] == "axis"
    assert table_of.loc["dtype", "mark"] == "set"
    assert table_of.loc["dtype", "default"] == "auto"
    assert table_of.loc["replay_mode", "mark"] == ""
    resolved = figures.configuration_table(trial, {"model"}).set_index("field")
    assert resolved.loc["dtype", "mark"] == "resolved"
    assert resolved.loc["model", "mark"] == "set"


def test_a_metric_table_has_definitions_and_reasons():
    found = figures.metric_table(records.record()).set_index("metric")
    assert found.loc["TTFT p99", "reason"] == "n=16 < 200"
    assert math.isnan(found.loc["TTFT p99", "value"])
    assert "harmonic over requests" in found.loc["Interactivity", "definition"]
    assert figures.metric_table(records.record(state=records.TrialState.FAILED)).empty


def test_an_interval_over_repeats_that_says_nothing_is_told_as_that():
    assert span_words(0.758, 68_000.0, 2) == "2 repeats: too few to say"
    assert span_words(95.0, 105.0, 2) == "95.0 to 105 over 2 repeats"
