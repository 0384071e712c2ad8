"""Points picked for their maxima are measured again, and what is left of them is told."""

import json

import pytest
from typer.testing import CliRunner

import workbench as wb
from experiments.plan import load_plan
from tests.fakes import measured, records
from workbench.cli import app
from workbench.compare_tables import show_confirmation
from workbench.confirm import chosen_points, confirmation, confirming_plan, fresh_seed
from workbench.errors import ComparisonError, UsageError

AXES = (wb.DEFAULT_X, wb.DEFAULT_Y)
PLAN = """
name: sim
target: simulated
simulation: {ttft_s: 0.004, tpot_s: 0.001, tpot_per_request_s: 0.001}
protocol: {name: quick, measured_s: 0.05, warm_up_per_slot: 0, limit_s: 3, drain_s: 2}
axes:
  - product: {batch_size: [1, 2, 4], draft_length: [0, 3]}
  - product: {replay_keep_tokens: [140, 200]}
    when: draft_length > 0
workloads:
  - {name: w, kind: synthetic, prompt_tokens: 16, output_tokens: 8}
gates: {drift: null, littles_law: null}
"""


def run_cli(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store with one simulated run; confirmations are added by the tests."""
    folder = tmp_path_factory.mktemp("store")
    (folder / "plan.yaml").write_text(PLAN)
    found = run_cli("run", folder / "plan.yaml", "--store", folder)
    assert found.exit_code == 0, found.output
    return wb.Store(folder)


@pytest.fixture
def parent(store):
    return store.run(next(name for name in store.run_ids() if store.run(name).parent is None))


def test_the_plan_asks_for_the_chosen_points_alone_with_a_fresh_seed(store, parent):
    names = chosen_points(parent, AXES, None)
    assert set(names) == set(wb.pareto(parent.points(), *AXES).members)
    plan = confirming_plan(parent, names[:2], 4, seed=7)
    (block,) = plan.axes
    assert {len(values) for values in block.axes.values()} == {2}
    assert plan.repeat_rule.max == plan.repeat_rule.min == 4
    assert plan.seed == 7
    assert plan.protocol == load_plan(parent.plan).protocol
    assert len(chosen_points(parent, AXES, 1)) == 1


def test_an_axis_that_a_condition_spared_is_written_at_the_value_that_was_in_force(parent):
    plain, drafting = (
        next(item for item in parent.documents() if item["point"]["axes"]["draft_length"] == draft)
        for draft in (0, 3)
    )
    plan = confirming_plan(parent, [plain["trial_id"], drafting["trial_id"]], 1, seed=1)
    assert plan.axes[0].axes["replay_keep_tokens"] == [
        plain["point"]["engine"]["replay_keep_tokens"],
        drafting["point"]["axes"]["replay_keep_tokens"],
    ]


def test_the_command_measures_the_front_again_into_a_run_that_names_its_parent(store, parent):
    command = ("confirm", parent.run_id, "--repeats", 2, "--points", 2, "--store", store.path)
    dry = run_cli(*command, "--dry-run")
    assert dry.exit_code == 0, dry.output
    before = set(store.run_ids())
    found = run_cli(*command, "--json")
    assert found.exit_code == 0, found.output
    (name,) = set(store.run_ids()) - before
    child = store.run(name)
    assert child.parent == parent.run_id
    assert len(child.documents()) == 4
    assert not child.trial_ids() & parent.trial_ids()
    document = json.loads(found.stdout.strip().splitlines()[-1])
    assert document["parent"] == parent.run_id
    assert len(document["points"]) == 2
    assert {one["metric"] for one in document["shrinkage"]} == {a.metric for a in AXES}
    assert "% of what the front claims" in found.output.replace("\n", " ")
    assert fresh_seed(parent, store) not in (parent.plan["seed"], child.plan["seed"])


def test_a_budget_bounds_what_is_confirmed_and_one_that_is_none_is_refused(store, parent):
    command = ("confirm", parent.run_id, "--repeats", 2, "--store", store.path)
    before = set(store.run_ids())
    wrong = run_cli(*command, "--budget", "soon")
    assert (wrong.exit_code, set(store.run_ids())) == (2, before)
    dry = run_cli(*command, "--dry-run", "--budget", "0.01s")
    assert "fit into the budget" in dry.output, dry.output


def fakes(tmp_path, claimed, true, *, repeats=4):
    """A parent that claims `claimed` times the plain speed, and fresh repeats at `true`."""
    parent = records.fill_store(tmp_path, [measured.trial(speed=claimed)])
    child = records.fill_store(
        tmp_path, measured.repeats(repeats, speed=true, noise=0.005, seed=3), parent=parent.run_id
    )
    return child, parent


def test_a_lucky_point_shrinks_and_an_honest_one_does_not(tmp_path):
    lucky = confirmation(*fakes(tmp_path, 1.1, 1.0), AXES)
    for one in lucky.shrinkage:
        assert one.high < 1
        assert one.ratio == pytest.approx(1 / 1.1, rel=0.04)
        assert "over 4 repeats" in one.sentence
        assert one.shifted
        assert "a lucky choice, or has the machine changed?" in one.sentence
    rate = AXES[1].metric
    assert lucky.points[f"{rate}.low"][0] < lucky.points[f"{rate}.confirmed"][0]
    honest = confirmation(*fakes(tmp_path, 1.0, 1.0), AXES)
    assert honest.shrinkage[1].ratio == pytest.approx(1.0, abs=0.04)


def test_a_machine_that_became_faster_is_suspected(tmp_path):
    found = confirmation(*fakes(tmp_path, 1.0, 2.25), AXES)
    for one in found.shrinkage:
        assert one.shifted
        assert "no choice explains: has the machine changed?" in one.sentence


def test_one_point_measured_again_cannot_say_that_it_is_on_the_front(tmp_path, capsys):
    found = confirmation(*fakes(tmp_path, 1.0, 1.0), AXES)
    assert found.points["on_front"].tolist() == [None]
    show_confirmation(found)
    said = " ".join(capsys.readouterr().out.split())
    assert "not judged: a point that alone was measured again" in said
    assert "still" not in said


def test_points_measured_again_compete_with_each_other(tmp_path):
    both = [measured.trial(speed=s, batch_size=c) for c, s in ((1, 1.0), (2, 0.5))]
    parent = records.fill_store(tmp_path, both)
    child = records.fill_store(tmp_path, both, parent=parent.run_id)
    found = confirmation(child, parent, AXES).points
    assert [words[:11] for words in found["point"]] == ["1 in flight", "2 in flight"]
    assert found["on_front"].tolist() == [True, False]


def test_one_fresh_repeat_tells_its_value_and_no_interval(tmp_path):
    found = confirmation(*fakes(tmp_path, 1.0, 0.9, repeats=1), AXES)
    assert found.shrinkage[0].low is None
    assert "no interval" in found.shrinkage[0].sentence


def test_a_run_confirms_its_parent_and_no_other(tmp_path):
    child, parent = fakes(tmp_path, 1.0, 1.0, repeats=1)
    with pytest.raises(ComparisonError, match="does not confirm"):
        confirmation(parent, child, AXES)


def test_a_run_without_a_front_or_without_repeats_to_measure_is_refused(tmp_path, parent, store):
    failed = records.fill_store(tmp_path, records.failed_records())
    with pytest.raises(ComparisonError, match="no point on a front"):
        chosen_points(failed, AXES, None)
    with pytest.raises(UsageError, match="no number of repeats"):
        confirming_plan(parent, chosen_points(parent, AXES, 1), 0, seed=1)
    refused = run_cli("confirm", parent.run_id, "--points", 0, "--store", store.path)
    assert refused.exit_code == 2
