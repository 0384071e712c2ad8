"""Figures: what is drawn, how it is marked, and what its title claims."""

import dataclasses
import json
import math

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests.fakes import records
from workbench import figures
from workbench.figures_labels import PLOT_HEIGHT, PLOT_WIDTH, Box, _candidates, free_positions
from workbench.figures_marks import marks_table
from workbench.figures_pareto import _obstacles
from workbench.figures_theme import MAX_GROUPS
from workbench.points import points_table
from workbench.trial_files import document

X = wb.Axis(metric="tok_s_user", direction="max")
Y = wb.Axis(metric="output_tok_s_device", direction="max")
TTFT = wb.Axis(metric="ttft_s_p50", direction="min")


def table(trials):
    return points_table("run", [document(trial) for trial in trials])


@pytest.fixture(scope="module")
def points():
    return table(records.sweep_records())


def drawn(points, x=X, y=Y, by=None, **look):
    front = wb.pareto(points, x, y, by=by)
    return figures.pareto(points, front, by=by, look=figures.Look(**look)), front


def records_of(workload):
    """Three sound trials of one workload."""
    found = []
    for size in (1, 4, 16):
        plain = records.record(batch_size=size)
        named = dataclasses.replace(plain.point, workload={"kind": "trace", "name": workload})
        found.append(dataclasses.replace(plain, trial_id=f"{workload}-{size}", point=named))
    return found


def head_of(figure):
    """Title and subtitle as one line."""
    return figure.layout.title.text.replace("<br>", " ").replace("\u00a0", " ")


def marks(figure):
    """trial id -> (x, y, marker symbol, hover) of every mark that can be clicked."""
    found = {}
    for trace in figure.data:
        if trace.customdata is not None:
            symbol = trace.marker.symbol or "circle"
            for cell, x, y, hover in zip(
                trace.customdata, trace.x, trace.y, trace.hovertext, strict=True
            ):
                found[cell[0]] = (x, y, symbol, hover)
    return found


def test_every_measured_trial_is_a_mark_at_its_numbers(points):
    found = marks(drawn(points)[0])
    measured = points[points["state"].isin(["ok", "invalid"])]
    assert set(found) == set(measured["trial_id"])
    for row in measured.itertuples():
        assert found[row.trial_id][:2] == (row.tok_s_user, row.output_tok_s_device)


def test_an_invalid_trial_is_hollow_with_its_first_failed_gate_in_the_hover(points):
    found = marks(drawn(points)[0])
    for row in points.itertuples():
        if row.trial_id in found:
            _, _, symbol, hover = found[row.trial_id]
            assert (symbol == "circle-open") == (row.state == "invalid")
            assert ("error_rate: 2 of 16" in hover) == (row.state == "invalid")


def test_what_cannot_be_drawn_is_counted(points):
    text = drawn(points)[0].layout.title.text.replace("<br>", " ")
    assert "1 failed" in text
    assert "1 skipped" in text


def test_the_title_names_the_best_of_each_axis_and_where_it_was(points):
    figure, front = drawn(points)
    best = points[points["trial_id"].isin(front.members)]
    top = best.loc[best["output_tok_s_device"].idxmax()]
    title = figure.layout.title.text.replace("<br>", " ")
    assert f"{figures.number(top['output_tok_s_device'])} tok/s/device with" in title
    assert f"{top['axis.batch_size']} in flight" in title
    assert f"{figures.number(best['tok_s_user'].max())} tok/s/user with" in title


def test_the_title_names_what_both_ends_of_the_front_have_in_common():
    fast = [records.record(batch_size=size, draft_length=5) for size in (1, 16)]
    slow = [records.record(batch_size=size, draft_length=0) for size in (1, 16)]
    assert (
        head_of(drawn(table(fast + slow))[0]).split("</b>")[0].endswith("both with draft length 5")
    )


def test_one_configuration_that_is_best_on_both_axes_is_said_so():
    figure, _ = drawn(table([records.record()]))
    assert "One configuration is best on both axes" in figure.layout.title.text.replace("<br>", " ")


def test_no_valid_point_is_said_and_still_a_figure():
    invalid = records.record(state=records.TrialState.INVALID)
    figure, _ = drawn(table([invalid]))
    assert "No valid point" in figure.layout.title.text
    assert len(marks(figure)) == 1


@pytest.mark.parametrize(
    ("x", "arrow"), [(X, "→"), (TTFT, "←")], ids=["more is better", "less is better"]
)
def test_an_arrow_points_the_good_way_and_the_axis_has_unit_statistic_and_basis(points, x, arrow):
    spec = wb.METRICS[x.metric]
    title = drawn(points, x=x)[0].layout.xaxis.title.text
    assert arrow in title
    assert f"({spec.unit})" in title
    assert spec.statistic in title
    assert f"over {spec.basis}" in title


@pytest.mark.parametrize("x", [X, TTFT], ids=["max", "min"])
def test_the_staircase_is_the_front_of_each_group(points, x):
    figure, front = drawn(points, x=x, by="axis.draft_length")
    lines = [(list(trace.x), list(trace.y)) for trace in figure.data if trace.mode == "lines"]
    expected = [tuple(part.tolist() for part in front.staircase(name)) for name in front.groups]
    assert lines == expected


def test_whiskers_end_at_the_interval(points):
    for trace in drawn(points)[0].data:
        if trace.customdata is not None:
            rows = points.set_index("trial_id").loc[[cell[0] for cell in trace.customdata]]
            assert np.allclose(np.add(trace.x, trace.error_x.array), rows["tok_s_user.high"])
            assert np.allclose(
                np.subtract(trace.y, trace.error_y.arrayminus), rows["output_tok_s_device.low"]
            )


def test_no_nan_reaches_the_browser(points):
    holes = points.copy()
    holes.loc[holes.index[:5], ["tok_s_user", "tok_s_user.low", "tok_s_user.high"]] = math.nan
    text = json.dumps(json.loads(drawn(holes)[0].to_json()), allow_nan=False)
    assert "NaN" not in text


def test_a_wide_range_gets_a_log_axis_and_a_narrow_one_does_not(points):
    wide = points.copy()
    wide.loc[wide.index[0], "output_tok_s_device"] = 1.0
    assert drawn(wide)[0].layout.yaxis.type == "log"
    assert drawn(points)[0].layout.yaxis.type is None


def test_more_groups_than_colours_are_gathered_and_counted():
    many = table([records.record(batch_size=size) for size in range(1, 13)])
    figure, _ = drawn(many, by="axis.batch_size")
    names = [trace.name for trace in figure.data if trace.showlegend]
    assert len(names) == MAX_GROUPS
    assert names[-1] == "other (5 values)"
    assert len(marks(figure)) == 12


def test_the_selected_trial_gets_a_ring(points):
    plain = len(drawn(points)[0].data)
    assert len(drawn(points, selected=points["trial_id"].iloc[0])[0].data) == plain + 1


def test_hostile_strings_are_escaped_wherever_a_figure_shows_them():
    hostile = table(records.hostile_records())
    by = "workload.name"
    text = drawn(hostile, by=by, subtitle=records.HOSTILE[0], title=records.HOSTILE[1])[0].to_json()
    shown = json.loads(text)
    texts = [shown["layout"]["title"]["text"]]
    for trace in shown["data"]:
        texts += [*(trace.get("hovertext") or []), trace.get("name") or ""]
    assert not any("<img" in item or "<script" in item for item in texts)
    assert any("&lt;img" in item for item in texts)


def test_ten_thousand_points_are_drawn_by_webgl_and_each_can_be_clicked(points):
    measured = points[points["state"] == "ok"]
    many = pd.concat([measured] * 500, ignore_index=True)
    many["trial_id"] = [f"{k:016x}" for k in range(len(many))]
    figure, _ = drawn(many, by="axis.draft_length")
    kinds = {trace.type for trace in figure.data if trace.customdata is not None}
    assert kinds == {"scattergl"}
    assert len(marks(figure)) == 10_000


def test_labels_keep_clear_of_marks_and_of_each_other():
    rng = np.random.default_rng(0)
    spots = rng.random((40, 2))
    texts = [f"c{i} d5 k140" for i in range(40)]
    found = free_positions(spots, texts, spots, lambda _: False)
    low, spread = spots.min(axis=0), np.ptp(spots, axis=0)
    pixels = (spots - low) / spread * np.array([PLOT_WIDTH, PLOT_HEIGHT])
    boxes = [
        _candidates(pixels[i], 6.2 * len(texts[i]))[side]
        for i, side in enumerate(found)
        if side is not None
    ]
    assert 5 < len(boxes) < 40
    assert not any(box.holds(pixels) for box in boxes)
    assert not any(one.overlaps(other) for k, one in enumerate(boxes) for other in boxes[k + 1 :])


def test_boxes_that_only_touch_do_not_overlap():
    left = Box(left=0, bottom=0, right=1, top=1)
    assert not left.overlaps(Box(left=1, bottom=0, right=2, top=1))
    assert left.overlaps(Box(left=0.5, bottom=0.5, right=2, top=2))


def test_the_letters_of_the_labels_are_explained(points):
    assert "c = requests in flight, dp = replicas" in head_of(drawn(points)[0])


def test_the_axis_that_the_colour_tells_is_not_written_beside_points(points):
    figure, _ = drawn(points, by="axis.batch_size")
    words = [text for trace in figure.data for text in trace.text or ()]
    assert words
    assert not any(word.startswith("c") for word in words)
    assert "c = " not in head_of(figure)


def test_a_figure_carries_the_labels_of_its_trials_wherever_it_is_drawn(points):
    for label in records.LABELS:
        assert label in head_of(drawn(points)[0])
        assert label in head_of(drawn(points, title="A title", subtitle="a subtitle")[0])
    plain = table([dataclasses.replace(records.record(), labels=())])
    assert records.INDICATIVE not in head_of(drawn(plain)[0])


def test_unlike_workloads_are_told_apart_and_never_compared():
    figure, front = drawn(table(records_of("short") + records_of("long")))
    title = head_of(figure).split("<span")[0]
    assert len(front.groups) == 2
    for name in ("short", "long"):
        assert f"{name}: " in title
    assert "best on both axes" not in title
    lines = [trace.line.color for trace in figure.data if trace.mode == "lines"]
    assert len(set(lines)) == 2
    assert {trace.name for trace in figure.data if trace.showlegend} == {"short", "long"}


def test_no_word_lies_on_a_line(points):
    figure, front = drawn(points, by="axis.draft_length")
    (words,) = (trace for trace in figure.data if trace.text)
    marks_at = np.array([place[:2] for place in marks(figure).values()])
    low, spread = marks_at.min(axis=0), np.ptp(marks_at, axis=0)
    pixels = np.array([PLOT_WIDTH, PLOT_HEIGHT]) / spread
    dots = (_obstacles(marks_table(points, front, None).query("drawn"), front) - low) * pixels
    spots = (np.stack([words.x, words.y], axis=1) - low) * pixels
    for spot, text, side in zip(spots, words.text, words.textposition, strict=True):
        assert not _candidates(spot, 6.2 * len(text))[side].holds(dots)
    assert len(dots) > len(marks_at) + 20


def test_the_name_of_y_stands_above_the_plot_with_an_arrow_that_points_the_good_way(points):
    for axis, arrow in ((Y, "↑"), (TTFT, "↓")):
        figure, _ = drawn(points, y=axis)
        (name,) = (note for note in figure.layout.annotations if note.name == "y")
        assert arrow in name.text
        assert f"({wb.METRICS[axis.metric].unit})" in name.text
        assert wb.METRICS[axis.metric].statistic in name.text


def test_a_hover_says_the_interval_and_the_reason_once(points):
    found = marks(drawn(points)[0])
    for row in points.itertuples():
        if row.trial_id in found:
            hover = found[row.trial_id][3]
            assert hover.count("95 % interval") == 2
            assert hover.count("invalid") == int(row.state == "invalid")


def test_a_linear_axis_starts_at_zero_and_a_logarithmic_one_says_so():
    narrow = table([records.record(batch_size=size) for size in (15, 16)])
    figure, _ = drawn(narrow)
    for axis in (figure.layout.xaxis, figure.layout.yaxis):
        assert axis.type is None
        assert axis.range[0] <= 0 < axis.range[1]
        assert axis.range[0] > -0.1 * axis.range[1]
    assert "log scale" not in figure.to_json()
    wide = table([records.record(batch_size=size) for size in (1, 4, 64)])
    figure, _ = drawn(wide, x=TTFT)
    assert figure.layout.xaxis.type == "log"
    assert "log scale" in figure.layout.xaxis.title.text
