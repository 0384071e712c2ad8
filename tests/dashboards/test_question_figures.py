"""What the pages' figures say of stored points: numbers worked by hand, and what is left out."""

import dataclasses
import json
import math

import numpy as np
import pandas as pd
import pytest
import yaml

from experiments.plan import load_plan
from experiments.proportions import share_between
from experiments.records import Chunk, MetricValue, TrialState
from experiments.sweep import planned
from experiments.targets.factory import target_factory
from experiments.watch import Second
from tests.fakes import progress, records
from workbench import figures
from workbench.figures_live import seconds_table
from workbench.figures_replay import median_interval, replay_settings, setting_order
from workbench.figures_speculation import DRAFT_AXIS
from workbench.figures_targets import target_marks
from workbench.figures_trends import Told
from workbench.points import points_table
from workbench.repeats import pooled
from workbench.trial_files import document

LOOK = figures.Look()
RATE = "output_tok_s_device"


def table(trials):
    return pooled(points_table("run", [document(trial) for trial in trials]))


def with_metrics(trial, **values):
    """The trial with other numbers: a value, or (value, low, high, n)."""
    found = {
        name: MetricValue(value=value[0], low=value[1], high=value[2], n=value[3])
        if isinstance(value, tuple)
        else MetricValue(value=value, n=10)
        for name, value in values.items()
    }
    return dataclasses.replace(trial, metrics=trial.metrics | found)


def rated(value, low=None, high=None, state=TrialState.OK, **axes):
    return with_metrics(records.record(state=state, **axes), **{RATE: (value, low, high, 10)})


def strict(figure):
    """The figure as a browser reads it; fails on NaN."""
    return json.loads(json.dumps(json.loads(figure.to_json()), allow_nan=False))


def title(figure):
    return figure.layout.title.text.replace("<br>", " ").split("</b>")[0].removeprefix("<b>")


@pytest.fixture(scope="module")
def points():
    return table(records.sweep_records())


def test_a_ratio_is_the_geometric_mean_of_pairs_alike_in_all_else_with_its_interval():
    found = figures.matched_ratios(
        table([
            rated(100, 90, 110, batch_size=1, draft_length=0),
            rated(200, 190, 210, batch_size=1, draft_length=5),
            rated(400, 360, 440, batch_size=4, draft_length=0),
            rated(200, 190, 210, batch_size=4, draft_length=5),
            rated(999, 990, 1010, batch_size=16, draft_length=5),
        ]),
        DRAFT_AXIS,
        RATE,
    )  # fmt: skip
    (row,) = found.to_dict("records")
    assert (row["base"], row["level"], row["pairs"]) == ("0", "5", 2)
    assert row["ratio"] == pytest.approx(math.sqrt(2 * 0.5))
    up = math.sqrt(2 * (math.log(1.05) ** 2 + math.log(1 / 0.9) ** 2)) / 2
    assert row["high"] == pytest.approx(math.exp(up))


def test_invalid_points_and_points_without_an_interval_claim_nothing():
    trials = [
        rated(100, 90, 110, draft_length=0),
        rated(300, draft_length=5),
        rated(900, 890, 910, draft_length=3, state=TrialState.INVALID),
    ]
    found = figures.matched_ratios(table(trials), DRAFT_AXIS, RATE)
    assert found["level"].tolist() == ["5"]
    assert found[["low", "high"]].isna().all(axis=None)


def test_a_cell_holds_the_best_over_all_other_axes_and_an_empty_one_its_reason(points):
    found = figures.cells(points, "axis.batch_size", "axis.draft_length", RATE)
    valid = points[points["valid"]]
    for row in found.rows.itertuples():
        here = valid[
            (valid["axis.batch_size"].map(str) == row.across)
            & (valid["axis.draft_length"].map(str) == row.up)
        ]
        assert row.value == here[RATE].max()
    lone = figures.cells(table([rated(1, state=TrialState.INVALID)]), "axis.batch_size", None, RATE)
    assert "2 of 16 requests failed" in lone.rows["why"].iloc[0]


def test_a_hole_of_the_heat_map_is_a_dash_with_its_reason_and_no_nan_reaches_the_browser():
    holes = table([rated(5, batch_size=1, draft_length=0), rated(7, batch_size=4, draft_length=5)])
    found = figures.cells(holes, "axis.batch_size", "axis.draft_length", RATE)
    drawn = strict(figures.heat_map(holes, found, look=LOOK))
    (dashes,) = [trace for trace in drawn["data"] if trace["type"] == "scatter"]
    assert dashes["text"] == ["—", "—"]
    assert all("no such point" in text for text in dashes["hovertext"])
    assert "2 cells without a valid point" in figures.heat_map(
        holes, found, look=LOOK
    ).layout.title.text.replace("<br>", " ")


def test_lines_that_are_not_told_apart_are_best_together():
    alike = [rated(100, 95, 105, draft_length=0), rated(103, 98, 108, draft_length=5)]
    found = figures.cells(table(alike), DRAFT_AXIS, None, RATE)
    assert title(figures.interaction_lines(table(alike), found, look=LOOK)) == (
        "Best draft length: 0 or 5"
    )
    apart = [alike[0], rated(203, 198, 208, draft_length=5)]
    found = figures.cells(table(apart), DRAFT_AXIS, None, RATE)
    assert title(figures.interaction_lines(table(apart), found, look=LOOK)).endswith(": 5")


def test_the_main_effects_name_the_axis_that_moves_most(points):
    figure = figures.main_effects(points, RATE, look=LOOK)
    assert title(figure).startswith("Requests in flight moves output throughput per device most: ×")
    lone = figures.main_effects(table([records.record()]), RATE, look=LOOK)
    assert "No two valid points differ" in title(lone)


def test_an_axis_of_very_many_values_is_named_not_drawn():
    many = table([rated(k + 1, batch_size=k + 1) for k in range(30)])
    text = figures.main_effects(many, RATE, look=LOOK).layout.title.text.replace("<br>", " ")
    assert "not drawn, too many values: requests in flight" in text


def test_every_load_has_its_best_and_says_whether_the_next_is_told_apart():
    trials = [
        rated(100, 95, 105, batch_size=1, draft_length=0),
        rated(150, 145, 155, batch_size=1, draft_length=5),
        rated(300, 290, 310, batch_size=4, draft_length=0),
        rated(305, 295, 315, batch_size=4, draft_length=5),
        rated(400, batch_size=16, draft_length=0),
    ]
    found = figures.best_by_load(table(trials), RATE)
    assert found["best"].tolist() == ["draft length 5", "draft length 5", "draft length 0"]
    assert [figures.apart(row) for _, row in found.iterrows()] == ["yes", "no", "nothing beside it"]


def test_parallel_coordinates_leave_out_and_count_what_is_not_valid(points):
    figure = figures.parallel_coordinates(points, RATE, look=LOOK)
    assert title(figure).startswith("20 points")
    assert "4 points not drawn" in figure.layout.title.text.replace("<br>", " ")


def drafted(**axes):
    return with_metrics(
        records.record(**axes),
        acceptance_length=(2.0, 1.9, 2.1, 100),
        acceptance_rate=(0.25, None, None, 400),
        acceptance_p1=(0.6, None, None, 100),
        acceptance_p2=(0.4, None, None, 100),
    )


def test_acceptance_is_counted_over_all_points_of_a_draft_length():
    trials = [drafted(batch_size=1, draft_length=5), drafted(batch_size=4, draft_length=5)]
    _, rows = figures.by_position(table(trials), given_before=False, look=LOOK)
    assert rows["share"].tolist() == pytest.approx([60, 40])
    assert rows["n"].tolist() == [200, 200]
    low, high = share_between(120, 200)
    assert (rows["low"].iloc[0], rows["high"].iloc[0]) == pytest.approx((100 * low, 100 * high))


def test_what_verification_is_spent_on_adds_up():
    trials = [drafted(batch_size=1, draft_length=5), records.record(draft_length=0)]
    _, rows = figures.verified_tokens(table(trials), look=LOOK)
    (row,) = rows.to_dict("records")
    assert (row["steps"], row["proposed"], row["verified"]) == (100, 400, 500)
    assert (row["accepted"], row["wasted"], row["emitted"]) == (100, 300, 200)


@pytest.mark.parametrize(
    ("slow", "words"),
    [
        ((50, 45, 55), "Drafting pays at every load"),
        ((200, 190, 210), "Drafting pays at 4 in flight"),
    ],
)
def test_where_drafting_pays_is_said_by_the_intervals(slow, words):
    trials = [
        rated(*slow, batch_size=1, draft_length=0),
        rated(100, 95, 105, batch_size=1, draft_length=5),
        rated(100, 95, 105, batch_size=4, draft_length=0),
        rated(150, 145, 155, batch_size=4, draft_length=5),
    ]
    figure, _ = figures.speed_up(table(trials), RATE, look=LOOK)
    assert title(figure).startswith(words)
    assert any(shape.y0 == 1.0 for shape in figure.layout.shapes)


@pytest.mark.parametrize("n", [6, 7, 20, 75, 500])
def test_the_interval_of_a_median_holds_it_in_95_of_100_cases(n):
    low, high = median_interval(np.arange(n, dtype=float))
    below = math.fsum(math.comb(n, k) for k in range(int(low) + 1)) / 2**n
    assert low + high == n - 1
    assert 2 * below <= 0.05
    assert 2 * below + 2 * math.comb(n, int(low) + 1) / 2**n > 0.05


def test_five_samples_give_no_interval_of_a_median():
    assert all(map(math.isnan, median_interval(np.arange(5.0))))


def test_replay_settings_are_in_the_order_off_mask_compact():
    rows = pd.DataFrame({
        "engine.replay_mode": ["compact", "off", "mask", "compact"],
        "engine.replay_keep_tokens": [256, 76, 76, 76],
    })  # fmt: skip
    assert setting_order(replay_settings(rows)) == [
        "off", "mask, keep 76", "compact, keep 76", "compact, keep 256",
    ]  # fmt: skip


def test_waits_are_read_of_the_least_loaded_valid_points_alone(tmp_path):
    run = records.fill_store(tmp_path)
    points, read = run.points(), []

    def requests(trial_id):
        read.append(trial_id)
        return run.requests(trial_id)

    found = figures.waits(points, requests)
    loads = points.set_index("trial_id").loc[read, "axis.batch_size"]
    assert set(loads) == {1}
    assert len(found) == 4 * len(read)
    assert found["seconds"].tolist() == pytest.approx([0.02] * len(found))


def test_rows_spared_and_flips_are_counted_over_all_points_of_a_setting():
    trials = [
        with_metrics(
            records.record(batch_size=size),
            decoder_rows_run=300.0,
            decoder_rows_skipped=100.0,
            token_flip_rate_off=(0.02, None, None, 100),
        )
        for size in (1, 4)
    ]
    (row,) = figures.replay_summary(table(trials)).to_dict("records")
    assert row["skipped_share"] == 25.0
    assert row["flips"] == pytest.approx(2.0)
    low, high = share_between(4, 200)
    assert (row["flips_low"], row["flips_high"]) == pytest.approx((100 * low, 100 * high))
    (bare,) = figures.replay_summary(table([records.record()])).to_dict("records")
    assert bare["skipped_share"] is None
    assert bare["flips"] is None
    assert bare["flips_reason"]


def test_a_distribution_ends_at_every_sample_and_pooled_gaps_have_no_band():
    trial = records.record(batch_size=4)
    figure, rows = figures.distributions({"it": trial}, "ttft_s", look=LOOK)
    assert rows["share"].iloc[-1] == 100
    assert rows["low"].between(0, 100).all()
    assert rows["n"].iloc[0] == 4
    strict(figure)
    _, pooled_rows = figures.distributions({"it": trial}, "itl_s", look=LOOK)
    assert pooled_rows["low"].isna().all()
    empty, _ = figures.distributions(
        {"none": records.record(state=TrialState.FAILED)}, "ttft_s", look=LOOK
    )
    assert title(empty) == "No sample of TTFT"


def test_tokens_over_time_hold_every_token_and_keep_the_warm_up_apart():
    trial = records.record(batch_size=4)
    figure, rows = figures.tokens_over_time(trial, look=LOOK)
    width = rows["time_s"].iloc[1] - rows["time_s"].iloc[0]
    counted = {warm: sum(c.tokens for r in trial.requests for c in r.chunks if r.warm_up == warm)
               for warm in (False, True)}  # fmt: skip
    assert rows["rate"].sum() * width == pytest.approx(counted[False])
    assert rows["warm_up"].sum() * width == pytest.approx(counted[True])
    assert any(shape.x0 == trial.window_s[0] for shape in figure.layout.shapes)


def test_the_ladder_is_in_milliseconds_where_nothing_takes_a_second():
    quick = figures.ladder(records.record(batch_size=1))
    assert quick.attrs["unit"] == "ms"
    first = quick.set_index("family").loc["ttft_s", "p50"]
    assert (first.value, first.low) == pytest.approx((18.0, 17.1))
    slow = with_metrics(records.record(), e2e_s_p50=3.0)
    assert figures.ladder(slow).attrs["unit"] == "s"


def test_chunks_of_several_tokens_are_counted_by_their_size():
    plain = records.record()
    chunks = tuple(Chunk(time_s=1.0 + k, tokens=n) for k, n in enumerate((1, 1, 1, 3)))
    requests = tuple(dataclasses.replace(r, chunks=chunks) for r in plain.requests)
    _, rows = figures.chunk_sizes(dataclasses.replace(plain, requests=requests), look=LOOK)
    assert rows["tokens"].tolist() == [1, 3]
    assert rows["share"].tolist() == [75, 25]


def test_a_second_in_which_nothing_came_holds_no_token_and_what_was_in_flight():
    rows = seconds_table([
        Second(second=3, output_tokens=5, in_flight=2), Second(second=6, output_tokens=7)
    ])  # fmt: skip
    assert rows["output_tokens"].tolist() == [5, 0, 0, 7]
    assert rows["in_flight"].tolist() == [2, 2, 2, 0]
    assert rows["ttft_s"].isna().all()
    strict(figures.seconds_figure(progress.current().seconds, look=LOOK))
    assert "Nothing has come" in title(figures.seconds_figure([], look=LOOK))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, "not known"), (40, "40 s"), (700, "12 min"), (9000, "2 h 30 min")],
)
def test_a_time_left_is_told_in_words(seconds, words):
    assert figures.duration_words(seconds) == words


def told(number, *trials):
    return Told(
        run_id=f"run-{number}",
        started_utc=f"2026-11-29T12:0{number}:00+00:00",
        commit=f"commit{number}",
        points=table(list(trials)),
    )


def test_a_trend_marks_a_change_where_the_intervals_do_not_overlap():
    runs = [
        told(1, rated(100, 95, 105)),
        told(2, rated(102, 97, 107)),
        told(3, rated(300, 290, 310, state=TrialState.INVALID)),
        told(4, rated(80, 76, 84)),
        told(5, rated(120)),
    ]
    (cell,) = figures.cells_of(runs)
    rows = figures.trend(runs, cell, RATE)
    assert rows["change"].tolist() == ["", "", "", "worse", ""]
    assert rows["before"].tolist()[3] == "run-2"
    figure = figures.trend_figure(rows, RATE, look=LOOK)
    assert title(figure) == "Output throughput per device is worse since commit4"
    strict(figure)


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        ((1.041, 1.029, 1.052), "+4.10 % (+2.90 to +5.20)"),
        ((0.5, math.nan, math.nan), "-50.0 %"),
        ((math.nan, math.nan, math.nan), "—"),
    ],
)
def test_a_change_is_told_in_percent_with_its_interval(ratio, words):
    assert figures.change_words(*ratio) == words


def test_facts_beside_each_other_say_which_differ_and_why_one_is_missing():
    found = figures.facts_beside({
        "a": {"os": "Linux", "packages": {"torch": "1"}, "load_average": [1.0], "driver": None,
              "reasons": {"driver": "no driver answers"}},
        "b": {"os": "Linux", "packages": {"torch": "2"}, "load_average": [2.0], "driver": "570"},
    }).set_index("fact")  # fmt: skip
    assert found["differs"].to_dict() == {
        "os": False, "torch": True, "load_average": False, "driver": True,
    }  # fmt: skip
    assert found.loc["driver", "a"] == "—"
    assert found.attrs["reasons"][("a", "driver")] == "no driver answers"


def test_the_plan_of_a_point_expands_to_that_point_alone():
    plan = load_plan({
        "name": "knobs", "target": "simulated",
        "axes": [{"product": {"draft_length": [0, 3], "batch_size": [1, 4]}}],
        "workloads": [{"name": "w", "kind": "synthetic", "prompt_tokens": 8, "output_tokens": 4}],
    })  # fmt: skip
    axes = {"batch_size": 4, "draft_length": 3}
    trial = dataclasses.replace(
        records.record(), point=dataclasses.replace(records.record().point, axes=axes)
    )
    narrowed = load_plan(yaml.safe_load(figures.point_plan(plan.document(), trial)))
    found = planned(narrowed, target_factory(narrowed), code_version="test")
    assert [one.point.axes for one in found] == [axes]


def test_target_marks_are_round_and_cover_the_range(points):
    marks = target_marks(points, "tok_s_user")
    valid = points.loc[points["valid"], "tok_s_user"]
    assert marks == sorted(set(marks))
    assert marks[0] == pytest.approx(valid.min(), abs=2)
    assert marks[-1] == pytest.approx(valid.max(), abs=2)
    assert target_marks(points.iloc[:0], "tok_s_user") == []


def test_hostile_words_stay_text_in_every_figure_of_a_run():
    hostile = table(records.hostile_records())
    found = figures.cells(hostile, "axis.batch_size", "axis.note", RATE)
    drawn = [
        figures.heat_map(hostile, found, look=LOOK),
        figures.interaction_lines(hostile, found, look=LOOK),
        figures.main_effects(hostile, RATE, look=LOOK),
        figures.parallel_coordinates(hostile, RATE, look=LOOK),
    ]
    for figure in drawn:
        shown = strict(figure)
        texts = [shown["layout"]["title"]["text"]]
        for trace in shown["data"]:
            texts += np.ravel(trace.get("hovertext") or []).tolist()
            places = [v for side in "xy" for v in trace.get(side) or () if isinstance(v, str)]
            texts += [str(trace.get("name", "")), *places]
        assert not any("<img" in text or "<script" in text for text in texts)
