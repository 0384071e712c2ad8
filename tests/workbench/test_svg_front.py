"""The static picture: it shows what the numbers say, and hostile text stays text."""

import dataclasses
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import records
from tests.fakes.records import points_of
from workbench.figures_labels import LETTER_WIDTH, LINE_HEIGHT
from workbench.fronts import pareto
from workbench.palette import OKABE_ITO
from workbench.pareto import DEFAULT_X, DEFAULT_Y
from workbench.svg_axes import scale_of
from workbench.svg_front import front_svg

SVG = "{http://www.w3.org/2000/svg}"


def drawn(items, by=None):
    points = points_of(items)
    front = pareto(points, DEFAULT_X, DEFAULT_Y, by)
    return front, ET.fromstring(front_svg(points, front))


def labels(svg):
    """Words beside marks: x, y, anchor and text; without the key that explains them."""
    found = [t for t in svg.iter(f"{SVG}text") if t.get("class") == "l t"]
    return [t for t in found if "=" not in t.text]


def box(label):
    width = LETTER_WIDTH * len(label.text)
    left = float(label.get("x")) - (width if label.get("text-anchor") == "end" else 0)
    bottom = float(label.get("y"))
    return left, bottom - LINE_HEIGHT + 3, left + width, bottom + 3


def test_every_point_of_the_front_is_a_full_mark_and_every_invalid_one_is_hollow():
    front, svg = drawn(records.sweep_records())
    circles = list(svg.iter(f"{SVG}circle"))
    full = [c for c in circles if c.get("class") is None and c.get("fill") in OKABE_ITO]
    hollow = [c for c in circles if c.get("class") == "h"]
    in_legend = 1  # of the only group
    assert len(full) == len(front.members) + in_legend
    assert len(hollow) == 2
    assert "not valid" in [t.text for t in svg.iter(f"{SVG}text")]


def test_the_staircase_runs_through_the_front_and_never_beyond():
    front, svg = drawn(records.sweep_records())
    (stairs,) = [p for p in svg.iter(f"{SVG}path") if p.get("class") == "s"]
    corners = re.findall(r"[\d.]+ [\d.]+", stairs.get("d"))
    assert len(corners) == len(front.staircase()[0])
    heights = [float(corner.split()[1]) for corner in corners]
    assert heights == sorted(heights)  # pixels grow downwards as the front falls


def test_each_group_has_its_colour_its_band_and_its_name():
    front, svg = drawn(records.sweep_records(), by="axis.draft_length")
    bands = [p for p in svg.iter(f"{SVG}path") if p.get("class") == "b"]
    assert [band.get("fill") for band in bands] == list(OKABE_ITO[:2])
    words = [t.text for t in svg.iter(f"{SVG}text")]
    assert {"draft_length=0", "draft_length=5"} <= set(words)
    assert set(front.groups) == {"draft_length=0", "draft_length=5"}


@pytest.fixture(scope="module")
def sixty():
    items = [records.record(batch_size=k + 1, draft_length=k % 6) for k in range(60)]
    return points_of(items)


@given(st.integers(0, 2**32 - 1), st.integers(2, 60), st.floats(1.0, 3.0))
def test_no_two_labels_cover_each_other(sixty, seed, count, reach):
    generator = np.random.default_rng(seed)
    points = sixty.head(count).copy()
    for metric in ("tok_s_user", "output_tok_s_device"):
        points[metric] = generator.uniform(1, 100, count)
        points[f"{metric}.low"] = points[metric] / reach
        points[f"{metric}.high"] = points[metric] * reach
    svg = ET.fromstring(front_svg(points, pareto(points, DEFAULT_X, DEFAULT_Y)))
    boxes = [box(label) for label in labels(svg)]
    for k, (left, top, right, bottom) in enumerate(boxes):
        for other in boxes[k + 1 :]:
            apart = right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top
            assert apart, (boxes[k], other)


def test_a_front_of_two_points_has_a_label_at_either_end():
    _, svg = drawn([records.record(batch_size=1), records.record(batch_size=16)])
    assert {label.text for label in labels(svg)} == {"c1", "c16"}


@pytest.mark.parametrize("text", [*records.HOSTILE, records.UNICODE])
def test_a_hostile_value_of_an_axis_stays_text(text):
    items = [records.record(batch_size=1, note=text), records.record(batch_size=16, note="b")]
    _, svg = drawn(items, by="axis.note")
    assert not list(svg.iter(f"{SVG}script"))
    assert not list(svg.iter(f"{SVG}img"))
    assert not [n for element in svg.iter() for n in element.attrib if n.startswith("on")]


def test_simulated_points_are_joined_by_a_dashed_line():
    items = [dataclasses.replace(records.record(), labels=("simulated",))]
    _, svg = drawn(items)
    (stairs,) = [p for p in svg.iter(f"{SVG}path") if p.get("class") == "s"]
    assert stairs.get("stroke-dasharray")


def test_ten_thousand_points_make_a_small_picture(sixty):
    generator = np.random.default_rng(0)
    points = sixty.iloc[np.arange(10_000) % 60].reset_index(drop=True)
    points["trial_id"] = [f"t{k}" for k in range(10_000)]
    for metric in ("tok_s_user", "output_tok_s_device"):
        points[metric] = generator.uniform(1, 100, 10_000)
    assert len(front_svg(points, pareto(points, DEFAULT_X, DEFAULT_Y))) < 300_000


def test_without_a_point_that_has_both_numbers_there_is_no_picture():
    points = points_of(records.failed_records())
    assert front_svg(points, pareto(points, DEFAULT_X, DEFAULT_Y)) is None


@given(st.lists(st.floats(1e-6, 1e9), min_size=1, max_size=20))
def test_an_axis_holds_its_values_and_has_ticks_to_read_them_by(values):
    scale = scale_of(np.array(values), 10.0, 500.0)
    assert all(10.0 <= scale(value) <= 500.0 for value in values)
    order = sorted(values)
    assert [scale(v) for v in order] == sorted(scale(v) for v in order)
    ticks = scale.ticks()
    assert 2 <= len(ticks) <= 30
    assert ticks == sorted(set(ticks))
    assert all(scale.low <= tick <= scale.high * (1 + 1e-9) for tick in ticks)
