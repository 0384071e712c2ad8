"""Which two sides the page Compare holds against each other: the address, and engines of a run."""

import dataclasses

import pytest

from tests.dashboards.conftest import shown
from tests.fakes import measured, records

SPEEDS = {"fast": 2.0, "ours": 1.5, "slow": 0.5}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store whose newest run is a plain one, after a run of three engines; its id comes too."""
    folder = tmp_path_factory.mktemp("arms")
    items = []
    for place, (arm, speed) in enumerate(SPEEDS.items()):
        for one in measured.repeats(2, speed=speed, seed=place, arm=arm):
            point = dataclasses.replace(one.point, engine={**one.point.engine, "arm": arm})
            items.append(dataclasses.replace(one, point=point))
    plan = {**records.plan(), "reference": "ours", "arms": {arm: {} for arm in SPEEDS}}
    run = records.fill_store(folder, items, plan=plan, engine="arms", name="engines")
    records.fill_store(folder, name="later")
    return folder, run.run_id


def sides(app):
    """The runs and the settings that the page has chosen, of A and B."""
    runs = [app.selectbox(key=f"choose.{name}").value for name in "ab"]
    return [(run, app.multiselect(key=f"compare.{name}.{run}").value)
            for name, run in zip("ab", runs, strict=True)]  # fmt: skip


def test_the_run_of_the_address_is_shown_by_its_arms_against_the_reference(open_page, store):
    folder, run_id = store
    app = open_page(folder, "compare", run=run_id)
    assert not app.exception
    assert sides(app) == [(run_id, ["arm=fast"]), (run_id, ["arm=ours"])]


def test_sides_of_the_address_are_read_as_the_command_line_writes_them(open_page, store):
    folder, run_id = store
    app = open_page(folder, "compare", a=f"{run_id}:arm=slow", b=f"{run_id}:arm=ours")
    assert not app.exception
    assert sides(app) == [(run_id, ["arm=slow"]), (run_id, ["arm=ours"])]
    assert sides(app.run()) == [(run_id, ["arm=slow"]), (run_id, ["arm=ours"])]


def test_a_run_with_arms_on_both_sides_is_shown_how_its_arms_are_compared(open_page, store):
    folder, run_id = store
    app = open_page(folder, "compare", a=run_id, b=run_id, a_where="", b_where="")
    assert f"workbench compare {run_id}:arm=fast {run_id}:arm=ours" in shown(app)
