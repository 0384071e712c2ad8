"""The golden checkpoints, and what `verify` says of damaged ones."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.errors import CheckpointError
from engine.golden import Golden
from engine.golden_outputs import Feeding, GoldenOutputs
from engine.golden_serving import served_keys
from engine.models.deepseek_v41.config import DeepseekV41Config
from engine.models.deepseek_v41.weights import load_weights
from engine.step_tensors import StepTensors
from engine.tokenizer import engram_token_map
from engine.verify import _compare_served, verify

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
SERVED = (Feeding.SERVED, Feeding.SERVED_CHUNKED, Feeding.DRAFTED, Feeding.DRAFTED_CHUNKED)
WHOLE = (Feeding.AT_ONCE, Feeding.UNEVEN, Feeding.SINGLY)


@pytest.fixture(scope="module")
def reports():
    torch.set_num_threads(1)  # module fixtures come before the one that does it for each test
    return {name: verify(GOLDEN / name) for name in ("v41-a", "v41-c")}


@pytest.fixture
def copy(tmp_path):
    target = tmp_path / "v41-c"
    shutil.copytree(GOLDEN / "v41-c", target)
    return target


def rewrite(model_dir, change):
    path = model_dir / "outputs.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


@pytest.mark.parametrize("name", ["v41-a", "v41-c"])
def test_the_engine_computes_what_the_golden_checkpoint_says(reports, name):
    assert reports[name].failures == ()
    assert reports[name].passed


@pytest.mark.parametrize("name", ["v41-a", "v41-c"])
def test_every_golden_key_is_compared_however_the_tokens_are_fed(reports, name):
    golden = Golden.load(GOLDEN / name)
    exact = {key for key in golden.tensors if key.startswith("fp32.")}
    rounded = {key for key in golden.tensors if key.startswith("qdq.")}
    rows = reports[name].rows
    for feeding in WHOLE:
        found = {r.key for r in rows if r.feeding == feeding and r.key.startswith("fp32.")}
        assert found == exact
    assert {r.key for r in rows if r.key.startswith("qdq.")} == rounded
    for feeding in SERVED:
        found = {r.key for r in rows if r.feeding == feeding}
        assert found == {"fp32.greedy.ids", "fp32.logits", "fp32.replay.decode_logits"}
    assert {r.feeding for r in rows} == {*WHOLE, *SERVED}
    assert all(r.judged for r in rows if r.key.startswith("fp32."))


def test_logits_are_within_the_published_tolerance(reports):
    for report in reports.values():
        logits = [r for r in report.rows if r.key == "fp32.logits"]
        assert [r.tolerance for r in logits] == [5e-4] * len(WHOLE + SERVED)
        assert max(r.difference for r in logits) <= 5e-4


def test_rounded_logits_are_judged_only_on_the_steady_checkpoint(reports):
    judged = {
        name: [r.key for r in report.rows if r.judged and r.key.startswith("qdq.")]
        for name, report in reports.items()
    }
    assert judged == {"v41-a": [], "v41-c": ["qdq.logits"]}
    (row,) = [r for r in reports["v41-c"].rows if r.key == "qdq.logits"]
    assert row.share_within is not None
    assert row.share_within >= 0.9


def test_every_rounded_row_says_why_it_is_judged_or_not(reports):
    why = {
        name: {r.key: r.why for r in report.rows if r.key.startswith("qdq.")}
        for name, report in reports.items()
    }
    told = re.match(r"nudged weights leave ([\d.]+)% of positions", why["v41-c"]["qdq.logits"])
    assert told  # the share itself depends on how a processor rounds
    assert 95 <= float(told[1]) <= 100
    assert why["v41-a"]["qdq.logits"].endswith("95% are asked for")
    assert why["v41-c"]["qdq.taps"] == "one rounding may flip a selection"


@pytest.fixture(scope="module")
def served():
    """The engine's share of `verify` on v41-c: key -> whether it is what the golden says."""
    torch.set_num_threads(1)
    golden, config = Golden.load(GOLDEN / "v41-c"), DeepseekV41Config.load(GOLDEN / "v41-c")
    outputs = GoldenOutputs(
        config=config,
        golden=golden,
        weights=load_weights(GOLDEN / "v41-c", config, dtype=torch.float32, device="cpu"),
        token_map=engram_token_map(GOLDEN / "v41-c", config),
        device="cpu",
    )
    model = outputs.model(outputs.weights, released_caches=False)

    def agreement():
        found = served_keys(model, golden, Feeding.SERVED_CHUNKED, "cpu")
        rows = _compare_served(golden, Feeding.SERVED_CHUNKED, found)
        return {row.key: row.passed for row in rows}

    return agreement


@pytest.mark.parametrize("fault", ["positions", "lookback_ids", "slots", "block_table"])
def test_an_engine_that_builds_its_steps_wrongly_fails(served, monkeypatch, fault):
    """The model by itself would pass; only what the engine serves differs."""
    forward_batch = StepTensors.forward_batch

    def wrong(step):
        batch = forward_batch(step)
        return replace(batch, **{fault: getattr(batch, fault).roll(1, dims=0)})

    monkeypatch.setattr(StepTensors, "forward_batch", wrong)
    assert not all(served().values())


def test_wrong_values_fail_and_are_named(copy):
    def change(tensors):
        tensors["fp32.taps"][3, 5] += 0.01
        tensors["fp32.greedy.ids"][7] += 1
        tensors["fp32.premix.2"][0, 0] = float("nan")

    rewrite(copy, change)
    report = verify(copy)
    assert not report.passed
    assert {r.key for r in report.failures} == {"fp32.taps", "fp32.greedy.ids", "fp32.premix.2"}
    assert {r.difference for r in report.failures if r.key == "fp32.greedy.ids"} == {1.0}


def test_a_missing_key_is_named(copy):
    rewrite(copy, lambda tensors: tensors.pop("fp32.premix.1"))
    with pytest.raises(CheckpointError, match=r"lacks the key fp32\.premix\.1"):
        verify(copy)


def test_a_misshapen_key_is_named(copy):
    def change(tensors):
        tensors["fp32.logits"] = tensors["fp32.logits"][:, :-1].contiguous()

    rewrite(copy, change)
    with pytest.raises(CheckpointError, match=r"fp32\.logits has the shape \[140, 127\]"):
        verify(copy)


@pytest.mark.parametrize("name", ["outputs.safetensors", "golden.json"])
def test_a_checkpoint_without_golden_outputs_is_refused(copy, name):
    (copy / name).unlink()
    with pytest.raises(CheckpointError, match=f"there is no {name}"):
        verify(copy)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"prompt_length": None}, "lacks the field prompt_length"),
        ({"uneven_chunks": [1, 2]}, "add up to the 140 ids"),
        ({"uneven_chunks": "many"}, "cannot be read"),
        ({"decode_after_replay": 51}, "must fit in the ids"),
        ({"replay_keep": 91}, "between 1 and prompt_length"),
        ({"greedy_tokens": 0}, "greedy_tokens must be positive"),
    ],
)
def test_lengths_that_cannot_be_are_refused(copy, changes, sentence):
    path = copy / "golden.json"
    document = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in document.items() if v is not None}))
    with pytest.raises(CheckpointError, match=sentence):
        Golden.load(copy)


def test_outputs_cut_short_are_refused(copy):
    path = copy / "outputs.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match="cannot be read"):
        Golden.load(copy)
