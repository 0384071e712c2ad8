"""What this workbench exports comes back with the same values under the same metrics."""

import dataclasses

import pytest

from experiments.records import MetricValue, TrialState
from tests.fakes import measured, records
from tests.fakes.foreign_files import FOLDER, imported
from workbench.cost import COST_METRICS
from workbench.exports.llm_d import llm_d_files
from workbench.exports.tables import points_csv
from workbench.exports.vllm_json import vllm_files


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    item = measured.trial(count=240)
    rates = {"acceptance_rate": 0.4, "acceptance_length": 2.5}
    told = {name: MetricValue(value=value, n=240) for name, value in rates.items()}
    item = dataclasses.replace(item, metrics=item.metrics | told)
    return records.fill_store(tmp_path_factory.mktemp("store"), [item])


@pytest.fixture(scope="module")
def trial(run):
    return run.trial(next(iter(run.trial_ids())))


def back(tmp_path, content, devices=None):
    path = tmp_path / "exported"
    path.write_bytes(content)
    return imported(tmp_path, path, devices=devices).points().iloc[0]


def held(point, trial, metrics):
    metrics = [name for name in metrics if trial.metrics[name].value is not None]
    assert metrics
    for name in metrics:
        assert point[name] == pytest.approx(trial.metrics[name].value), name


def test_vllm_json(tmp_path, run, trial):
    (content,) = vllm_files(run).values()
    point = back(tmp_path, content)
    same = ("output_tok_s", "total_tok_s", "request_s", "ttft_s_mean", "ttft_s_p50", "ttft_s_p99",
            "tpot_compat_s_mean", "tpot_compat_s_p50", "icl_s_p50", "e2e_s_mean", "e2e_s_p90",
            "duration_s", "acceptance_length", "acceptance_rate")  # fmt: skip
    held(point, trial, [name for name in same if name in trial.metrics])
    assert point["completed_requests"] == 240


def test_vllm_json_keeps_the_axes_of_the_point(tmp_path):
    run = records.fill_store(tmp_path / "ours")
    paths = []
    for name, content in vllm_files(run).items():
        paths.append(tmp_path / name)
        paths[-1].write_bytes(content)
    points = imported(tmp_path, *paths).points()
    mine = {name for name in run.points() if name.startswith("axis.")}
    assert mine - {"axis.batch_size"} <= set(points)
    assert len(points) == len(paths)


ARMS = {
    "ours": ("in_process", {}, "inference-workbench"),
    "theirs": ("vllm", {"version": "vllm 0.26.0, torch 2.11.0"}, "vllm"),
    "served": ("server", {"launcher": "llama.cpp", "version": "build 1"}, "llama.cpp"),
}


@pytest.fixture(scope="module")
def arms(tmp_path_factory):
    """A run of three engines, each measured twice at one point."""
    items = []
    for arm, (_, told, _) in ARMS.items():
        for repeat in (0, 1):
            one = measured.trial(count=40, repeat=repeat, arm=arm)
            engine = {**one.point.engine, **told, "arm": arm}
            point = dataclasses.replace(one.point, engine=engine)
            items.append(dataclasses.replace(one, point=point))
    plan = {"arms": {arm: {"target": target} for arm, (target, _, _) in ARMS.items()}}
    return records.fill_store(tmp_path_factory.mktemp("arms"), items, engine="arms", plan=plan)


@pytest.mark.parametrize("export", ["vllm", "llm-d"])
def test_each_arm_comes_back_as_its_engine_with_its_repeats(tmp_path, arms, export):
    paths = []
    for place, content in enumerate(exported(arms, export)):
        paths.append(tmp_path / str(place))
        paths[-1].write_bytes(content)
    points = imported(tmp_path, *paths).points()
    assert "axis.duplicate" not in points
    told = dict(zip(points["axis.arm"], points["engine.framework"], strict=True))
    assert told == {arm: tool for arm, (_, _, tool) in ARMS.items()}
    assert points["repeats"].tolist() == [2, 2, 2]


def test_llm_d_report(tmp_path, run, trial):
    (content,) = llm_d_files(run).values()
    point = back(tmp_path, content)
    same = ("output_tok_s", "total_tok_s", "request_s", "ttft_s_mean", "ttft_s_p99", "tpot_s_mean",
            "tpot_s_p50", "itl_s_mean", "itl_s_p50", "e2e_s_mean", "e2e_s_p99")  # fmt: skip
    held(point, trial, [name for name in same if name in trial.metrics])
    assert "this workbench" not in point["tpot_s_mean.basis"]
    assert "tokens of the first chunk" in point["tpot_s_mean.basis"]


def test_points_csv_with_samples_and_intervals(tmp_path, run):
    points = run.points()
    row = points.iloc[0]
    point = back(tmp_path, points_csv([run]))
    names = [name for name in points if f"{name}.n" in points and name not in COST_METRICS]
    assert len(names) > 20
    for name in names:
        for part in ("", ".low", ".high", ".n"):
            if row[name + part] == row[name + part]:
                assert point[name + part] == pytest.approx(row[name + part]), name + part
            else:
                assert point[name + part] != point[name + part]


def test_points_of_csv_that_are_not_valid_stay_so(tmp_path):
    run = records.fill_store(tmp_path / "ours")
    path = tmp_path / "points.csv"
    path.write_bytes(points_csv([run]))
    mine, theirs = run.trials(), imported(tmp_path, path).points()
    assert theirs["valid"].sum() == mine["valid"].sum()
    assert theirs.loc[~theirs["valid"], "reason"].notna().all()


def test_csv_of_an_imported_run_without_counts_of_samples(tmp_path):
    """A row of InferenceX tells no number of requests; its numbers and their bases come back."""
    theirs = imported(tmp_path, FOLDER / "inferencex/agg_dsr1_1k1k.json")
    path = tmp_path / "points.csv"
    path.write_bytes(points_csv([theirs]))
    again = imported(tmp_path, path)
    before, after = (run.trials().reset_index(drop=True) for run in (theirs, again))
    for name in ("tok_s_user_p50", "total_tok_s_device", "ttft_s_p99", "icl_s_mean"):
        assert after[name].tolist() == before[name].tolist()
        assert after[f"{name}.basis"].tolist() == before[f"{name}.basis"].tolist()
        assert after[f"{name}.n"].isna().all()


@pytest.mark.parametrize("export", ["vllm", "llm-d", "csv"])
def test_labels_come_back(tmp_path, export):
    item = dataclasses.replace(measured.trial(count=40), labels=("indicative",))
    run = records.fill_store(tmp_path / "ours", [item])
    (content,) = exported(run, export)
    assert "indicative" in back(tmp_path, content)["labels"]


@pytest.mark.parametrize("export", ["vllm", "csv"])
def test_a_trial_that_a_gate_failed_comes_back_as_such(tmp_path, export):
    item = dataclasses.replace(measured.trial(count=40), state=TrialState.INVALID,
                               reason="client: it fell behind")  # fmt: skip
    run = records.fill_store(tmp_path / "ours", [item])
    (content,) = exported(run, export)
    point = back(tmp_path, content)
    assert not point["valid"]
    assert "it fell behind" in point["reason"]


def exported(run, form):
    made = {"vllm": vllm_files, "llm-d": llm_d_files, "csv": lambda run: {"": points_csv([run])}}
    return made[form](run).values()
