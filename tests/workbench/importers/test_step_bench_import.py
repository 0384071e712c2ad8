"""A bench of served decode steps as a run."""

import copy

from tests.fakes.foreign_files import imported, written

SECONDS = {"step": 2e-3, "busy": 1.9e-3, "idle": 1e-6, "plan": 4e-4, "plan+settle": 9e-4}


def variant(name, tokens_per_s):
    return {
        "variant": name, "steps": 40, "replayed_steps": 40, "tokens_per_s": tokens_per_s,
        "text": "5548ff49f4e4", "p50_s": SECONDS, "p99_s": {"step": 2.1e-3}, "idle_share": 0.006,
    }  # fmt: skip


BENCH = {
    "format": "step bench", "version": 1, "device": "NVIDIA H200", "driver": "570.1",
    "torch": "2.11", "triton": "3.6", "commit": "abc123",
    "served": [{
        "engine": {"model": "nano", "draft_length": 5},
        "load": {"requests": 32, "prompt_tokens": 64, "steps": 40, "rounds": 1, "temperature": 0.0},
        "variants": [variant("overlap=on graphs=auto", 50_000.0),
                     variant("overlap=off graphs=off", 4_000.0)],
    }],
}  # fmt: skip


def test_every_variant_of_every_load_is_a_point_with_its_times(tmp_path):
    run = imported(tmp_path, written(tmp_path, "steps.json", BENCH))
    assert run.summary.accelerator == "NVIDIA H200"
    assert run.origin["tool_version"] == "abc123"
    points = run.points()
    assert sorted(points["output_tok_s"]) == [4_000.0, 50_000.0]
    assert set(points["axis.variant"]) == {"overlap=on graphs=auto", "overlap=off graphs=off"}


def test_quantiles_are_kept_under_their_stage_and_what_is_absent_is_left_out(tmp_path):
    run = imported(tmp_path, written(tmp_path, "steps.json", BENCH))
    first = min(run.trial_ids())
    told = {one.key: one.value for one in run.trial(first).foreign}
    assert told["busy p50"] == 1.9e-3
    assert told["step p99"] == 2.1e-3
    assert "busy p99" not in told
    assert told["idle_share"] == 0.006


def test_a_variant_whose_rounds_said_different_things_is_invalid(tmp_path):
    broken = copy.deepcopy(BENCH)
    broken["served"][0]["variants"][1]["repeats"] = False
    points = imported(tmp_path, written(tmp_path, "steps.json", broken)).points()
    assert list(points["valid"]) == [True, False]


def test_precisions_are_told_apart(tmp_path):
    both = copy.deepcopy(BENCH)
    both["served"].append(copy.deepcopy(both["served"][0]))
    both["served"][1]["engine"] |= {"dtype": "float32", "accelerator": "cuda"}
    run = imported(tmp_path, written(tmp_path, "steps.json", both))
    points = run.points()
    assert run.summary.accelerator == "NVIDIA H200"
    assert set(points["axis.dtype"].dropna()) == {"float32"}
    assert "axis.duplicate" not in points


def test_steps_with_a_prompt_are_told_from_decode_steps(tmp_path):
    load = {"decoding": 31, "prompt_tokens": 128, "steps": 16, "rounds": 2}
    variants = [
        {"variant": name, "steps": 32, "replayed_steps": count, "repeats": True, "other_texts": 0,
         "p50_s": {"step": seconds, "busy": 2e-3}, "p99_s": {"step": 4e-2}}
        for name, count, seconds in (("graphs=auto", 32, 3.3e-3), ("graphs=off", 0, 3.4e-2))
    ]  # fmt: skip
    document = {name: value for name, value in BENCH.items() if name != "served"}
    document |= {
        "format": "prompt bench",
        "prompted": [{"engine": {"model": "nano"}, "load": load, "variants": variants}],
    }
    run = imported(tmp_path, written(tmp_path, "prompts.json", document))
    points = run.points()
    assert set(points["workload.kind"]) == {"steps with a prompt"}
    assert set(points["workload.decoding"]) == {31}
    told = [{one.key: one.value for one in run.trial(name).foreign} for name in run.trial_ids()]
    assert sorted(one["step p50"] for one in told) == [3.3e-3, 3.4e-2]
