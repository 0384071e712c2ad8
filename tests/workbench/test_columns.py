"""Tables of points are read by their axes, whatever was measured first."""

import pandas as pd
from typer.testing import CliRunner

import workbench as wb
from tests.fakes import measured, records
from workbench.cli import app
from workbench.columns import by_axes

SIZES = (16, 1, 4)


def test_rows_come_by_their_axes_numbers_by_size_then_words_then_none():
    points = pd.DataFrame(
        {"axis.size": [16, "auto", 4, None, 4], "axis.draft": [0, 0, 5, 0, 0.0]},
        index=list("abcde"),
    )
    assert "".join(by_axes(points).index) == "ecabd"


def test_rows_alike_in_all_axes_stay_in_their_order():
    assert list(by_axes(pd.DataFrame({"axis.c": [1, 1], "x": [2, 1]}))["x"]) == [2, 1]
    assert list(by_axes(pd.DataFrame({"x": [2, 1]}))["x"]) == [2, 1]


def test_points_are_shown_and_compared_by_their_axes(tmp_path):
    a, b = (
        records.fill_store(
            tmp_path, [measured.trial(speed=s, seed=c, batch_size=c) for c in SIZES], name=name
        )
        for name, s in (("old", 1.0), ("new", 2.0))
    )
    rows = wb.compare(a, b, metrics=["tok_s_user"]).points["point"]
    assert [words.split()[0] for words in rows] == ["1", "4", "16"]
    shown = CliRunner().invoke(app, ["show", a.run_id, "--store", str(tmp_path)]).output
    places = [shown.index(f" c{size} ") for size in (1, 4, 16)]
    assert places == sorted(places)
