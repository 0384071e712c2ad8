"""What keeps a picture readable and a page to its question: ranges, leading metrics, words."""

import dataclasses
import json
import math

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from dashboards import fronts
from experiments.records import MetricValue
from tests.dashboards.conftest import shown
from tests.fakes import records
from workbench.columns import worded
from workbench.figures import (
    Look,
    basis_phrase,
    beats_figure,
    cells,
    conduct_table,
    headline,
    interaction_lines,
    interval,
    is_empty,
    kind_words,
    pareto,
    point_order,
)
from workbench.figures_range import CUT, reach
from workbench.figures_text import value_text
from workbench.fronts import exclusions

CELLS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.floats(), st.text(max_size=2),
    st.lists(st.integers(0, 1), max_size=1),
)  # fmt: skip


@given(st.lists(CELLS, max_size=12))
def test_a_column_reads_as_each_of_its_cells_does(cells):
    column = pd.Series(cells, dtype=object)
    assert worded(column, value_text).tolist() == [value_text(cell) for cell in cells]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9), st.lists(st.floats(-1e9, 1e9)))
def test_every_value_stays_in_sight_and_intervals_take_no_more_room_than_the_values(values, ends):
    low, high, cut = reach(np.array(values), np.array(ends, dtype=float))
    spread = (max(values) - min(values)) or abs(max(values)) or 1.0
    assert low <= min(values)
    assert max(values) <= high
    assert high - low <= 3 * spread * (1 + 1e-9)
    assert cut == any(end < low or end > high for end in ends)


def sweep_with(high):
    trials = [records.record(batch_size=size) for size in (1, 4, 16)]
    for k, trial in enumerate(trials):
        metrics = {
            name: dataclasses.replace(found, high=found.high and found.high * high)
            for name, found in trial.metrics.items()
        }
        trials[k] = dataclasses.replace(trial, metrics=metrics)
    return records.points_of(trials)


@pytest.mark.parametrize(("wider", "cut"), [(1.0, False), (1000.0, True)])
def test_a_front_is_not_crushed_by_intervals_and_says_that_they_are_cut(wider, cut):
    points = sweep_with(wider)
    figure = pareto(points, wb.pareto(points, wb.DEFAULT_X, wb.DEFAULT_Y), look=Look())
    assert figure.layout.xaxis.range[1] < 3 * points["tok_s_user"].max()
    assert (CUT in " ".join(note.text for note in figure.layout.annotations)) is cut


def test_a_figure_without_a_mark_is_empty():
    assert is_empty(go.Figure(go.Scatter(x=[None], y=[None])))
    assert is_empty(go.Figure(go.Scatter(x=[1.0, 2.0], y=[math.nan, None])))
    assert is_empty(go.Figure(go.Bar(x=[None], y=["compact"])))
    assert not is_empty(go.Figure(go.Bar(x=[0.0], y=["compact"])))


def loaded(kind, **metrics):
    """A trial of one form of load with more metrics."""
    plain = records.record(batch_size=4)
    workload = {**plain.point.workload, "load": kind}
    found = {name: MetricValue(value=value, n=8) for name, value in metrics.items()}
    point = dataclasses.replace(plain.point, workload=workload)
    return dataclasses.replace(plain, point=point, metrics=plain.metrics | found)


def test_prefill_throughput_leads_a_run_of_prefill_steps(open_page, tmp_path):
    trial = loaded("prefill_step", prefill_tok_s=4321.0, rounds=7)
    silent = {name: v for name, v in trial.metrics.items() if not name.startswith("tok_s_user")}
    records.fill_store(tmp_path, [dataclasses.replace(trial, metrics=silent)])
    text = shown(open_page(tmp_path, "overview"))
    assert "Prefill throughput 4,320 tok/s" in text
    assert "Best prefill throughput" in text
    assert "No valid trial" not in text
    assert "Prefill throughput (tok/s)" in shown(open_page(tmp_path, "run"))
    assert open_page(tmp_path, "pareto").selectbox(key="choose.y").value == "prefill_tok_s"


def test_runs_of_several_forms_of_load_lead_as_serving_does():
    one = records.points_of([loaded("prefill_step", prefill_tok_s=1.0)])
    both = records.points_of([loaded("prefill_step", prefill_tok_s=1.0), loaded("decode_batch")])
    assert headline(one).y == "prefill_tok_s"
    assert headline(both).y == wb.DEFAULT_Y.metric


def test_valid_points_without_both_numbers_are_not_called_invalid():
    points = records.points_of([records.record()])
    summary = dataclasses.make_dataclass("Summary", ["counts"])({"ok": 1})
    assert fronts.sentence(points, None, summary) == "1 valid point, none with both numbers"


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [(1.0, 2.0, "1.00 to 2.00"), (1.0, None, "at least 1.00"), (None, None, ""), (None, 2.0, "")],
)
def test_an_interval_that_nothing_bounds_above_is_a_lower_bound(low, high, words):
    assert interval(low, high) == words


def test_what_an_interval_covers_is_said_by_repeats_and_of_an_eval_by_its_questions():
    assert basis_phrase(1) == "within run"
    assert basis_phrase(3) == "over 3 repeats"
    assert basis_phrase(3, "accuracy") == "over questions"


def test_a_group_is_told_in_words():
    assert kind_words("workload.name=chat, prompt_tokens=64") == "chat, prompt tokens 64"
    assert kind_words("draft_length=5") == "draft length 5"
    assert kind_words("all") == "all"


def test_failures_are_counted_by_kind_and_client_processes_are_told():
    requests = [
        dataclasses.replace(request, error="late", error_kind=kind, worker=k % 2)
        for k, (request, kind) in enumerate(
            zip(records.requests_of(1)[1:], ("timeout", "timeout", "http_500"), strict=False)
        )
    ]
    trial = dataclasses.replace(records.record(), requests=tuple(requests))
    facts = dict(conduct_table(trial)[["fact", "value"]].itertuples(index=False))
    assert facts["failed requests"] == "2 timeout, 1 http 500"
    assert facts["client processes"] == "2"


def test_a_point_is_excluded_for_the_first_of_its_faults():
    points = records.points_of([records.record(batch_size=size) for size in (1, 2, 3)])
    points.loc[0, "valid"] = False
    points.loc[0, "tok_s_user"] = math.nan
    points.loc[1, ["tok_s_user", "output_tok_s_device"]] = math.nan
    points.loc[2, "output_tok_s_device.n"] = 0
    told = exclusions(points, ["tok_s_user", "output_tok_s_device"])
    assert told[0] == "ok: no reason kept"
    assert told[1] == "tok_s_user is missing: not measured"
    assert told[2] == "output_tok_s_device rests on no sample (n=0)"


def test_points_are_in_the_order_of_the_numbers_in_their_names():
    names = pd.Series(
        ["16 in flight, draft length 0", "4 in flight", "4 in flight, draft length 5"]
    )
    assert point_order(names) == [1, 2, 0]


def test_a_line_that_lacks_the_first_value_does_not_change_the_order_of_the_axis():
    points = records.points_of([
        records.record(batch_size=1, draft_length=5),
        records.record(batch_size=4, draft_length=0),
    ])  # fmt: skip
    found = cells(points, "axis.batch_size", "axis.draft_length", "tok_s_user")
    drawn = interaction_lines(points, found, look=Look())
    assert list(drawn.layout.xaxis.categoryarray) == ["1", "4"]


def test_the_overview_of_a_run_without_a_valid_trial_gives_the_reasons(open_page):
    reason = records.REASONS[records.TrialState.FAILED]
    assert reason in shown(open_page("failed", "overview"))


@pytest.mark.parametrize(("judged", "told"), [(True, "beats"), (False, "Not judged")])
def test_a_chance_to_be_better_reads_as_the_verdict_beside_it(judged, told):
    points = records.points_of([
        records.record(batch_size=size, arm=arm) for size in (1, 4, 16) for arm in ("A", "B")
    ])  # fmt: skip
    points = points.assign(arm=points["axis.arm"])
    front = wb.pareto(points, wb.DEFAULT_X, wb.DEFAULT_Y, by="arm")
    figure, rows = beats_figure(front, look=Look(), judged=judged)
    assert len(rows)
    assert told in figure.layout.meta["title"]


def test_a_search_tells_its_answer_on_the_run_page(open_page, tmp_path):
    trials = [records.record(batch_size=size) for size in (1, 4, 16)]
    run = records.fill_store(tmp_path, trials)
    path = run.folder / "run.json"
    document = json.loads(path.read_text())
    document["plan"]["search"] = {
        "maximize": "output_tok_s_device", "over": {"batch_size": [1, 16]}, "trials": 3,
        "subject_to": ["ttft_s_p50 <= 0.1"],
    }  # fmt: skip
    path.write_text(json.dumps(document))
    text = shown(open_page(tmp_path, "run"))
    assert "What the search found" in text
    assert "best of 3, each measured once: 4 in flight" in text
    assert f"trial={trials[1].trial_id}" in text
