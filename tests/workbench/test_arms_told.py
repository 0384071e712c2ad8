"""How engines of one run are told against each other: reports, comparisons, corrections."""

import dataclasses
import re

import pytest

import workbench as wb
from tests.fakes import measured, records
from tests.fakes.command import workbench as run_cli
from workbench.compare_words import ESTIMATES
from workbench.report_content import gather

SPEEDS = {"ours": 2.0, "slow": 0.5, "vllm": 1.0}


@pytest.fixture(scope="module")
def items():
    found = []
    for place, (arm, speed) in enumerate(SPEEDS.items()):
        for one in measured.repeats(3, speed=speed, noise=0.01, seed=place, arm=arm):
            told = {"arm": arm} | ({"seed": 0} if arm == "ours" else {"seed": None})
            point = dataclasses.replace(one.point, engine={**one.point.engine, **told})
            labels = ("indicative", "told again") if arm == "ours" else ("indicative",)
            found.append(dataclasses.replace(one, point=point, labels=labels))
    return found


def stored(folder, items, **workload):
    plan = {**records.plan(), "reference": "ours", "arms": {arm: {} for arm in SPEEDS}}
    changed = [
        dataclasses.replace(
            one, point=dataclasses.replace(one.point, workload={**one.point.workload, **workload})
        )
        for one in items
    ]
    return records.fill_store(folder, changed, plan=plan, engine="arms")


def test_a_report_answers_the_reference_against_every_other_arm_first(tmp_path, items):
    said = gather([stored(tmp_path, items)], static=True).verdicts[0]
    found = re.fullmatch(
        r"Arm ours, Output throughput per device: against slow faster by ([\d.]+) % \(.* to .*\); "
        r"against vllm faster by ([\d.]+) % \(.* to .*\)\.",
        said,
    )
    assert found is not None, said
    slow, vllm = map(float, found.groups())
    assert 250 < slow < 350
    assert 80 < vllm < 120


def test_of_one_repeat_the_reference_is_told_against_every_arm_without_a_verdict(tmp_path, items):
    single = [one for one in items if one.repeat == 0]
    said = gather([stored(tmp_path, single)], static=True).verdicts[0]
    found = re.fullmatch(
        r"Arm ours, Output throughput per device: against slow \+([\d.]+) % \((.*)\); "
        r"against vllm \+([\d.]+) % \((.*)\)\.",
        said,
    )
    assert found is not None, said
    slow, _, vllm, _ = found.groups()
    assert 250 < float(slow) < 350
    assert 80 < float(vllm) < 120
    assert said.count("one repeat, so no verdict") == 2


def differences(run):
    found = wb.compare(wb.select(run, arm="vllm"), wb.select(run, arm="ours"))
    return {one.name: one for one in found.differences}


def test_labels_tell_only_what_differs(tmp_path, items):
    said = differences(stored(tmp_path, items))["labels"].sentence
    assert said.startswith("The labels differ: B alone has told again; ")


@pytest.mark.parametrize(("temperature", "severity"), [(0.0, "note"), (0.7, "warn")])
def test_a_seed_that_plays_no_part_is_no_warning(tmp_path, items, temperature, severity):
    found = differences(stored(tmp_path, items, temperature=temperature))
    assert str(found["seed"].severity) == severity


def test_a_comparison_says_that_a_ratio_of_repeats_is_not_that_of_the_values(tmp_path, items):
    run = stored(tmp_path, items)
    sides = [f"{run.run_id}:arm={arm}" for arm in ("vllm", "ours")]
    done = run_cli("compare", *sides, "--store", tmp_path)
    assert done.exit_code == 0, done.output
    assert ESTIMATES in done.output
    single = stored(tmp_path / "one", [one for one in items if one.repeat == 0])
    sides = [f"{single.run_id}:arm={arm}" for arm in ("vllm", "ours")]
    assert ESTIMATES not in run_cli("compare", *sides, "--store", tmp_path / "one").output
