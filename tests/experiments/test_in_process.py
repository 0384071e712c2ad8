"""The real engine behind the target, on the smallest checkpoint there is."""

import multiprocessing
import shutil

import pytest

from engine.errors import CheckpointError, ConfigError
from engine.llm import open_apart, open_serving
from engine.make_checkpoint import make_checkpoint
from engine.request import Request, RequestId, SamplingParams
from experiments.errors import TargetError
from experiments.observe import NoObserver
from experiments.plan import load_plan
from experiments.records import TrialState
from experiments.sweep import planned, run
from experiments.targets.factory import target_factory
from experiments.targets.in_process import InProcessTarget


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return make_checkpoint("toy", seed=0, directory=tmp_path_factory.mktemp("models") / "toy")


def plan(toy, **fields):
    engine = {"model": str(toy), "num_threads": 1, "max_model_len": 128, "max_num_seqs": 4}
    document = {
        "name": "real",
        "protocol": {"name": "quick", "measured_s": 0.3, "warm_up_output_tokens": 2},
        "workloads": [{"name": "s", "kind": "synthetic", "prompt_tokens": 40, "output_tokens": 8}],
        "load": {"kind": "closed", "batch_size": 2},
        **fields,
        "engine": {**engine, **fields.get("engine", {})},
    }
    return load_plan(document)


def sweep(toy, **fields):
    built = plan(toy, **fields)
    return list(run(built, target_factory(built), observer=NoObserver()))


def test_draft_lengths_are_swept_on_the_engine_and_yield_the_same_text(toy):
    found = sweep(toy, axes=[{"product": {"draft_length": [0, 5]}}])
    texts = []
    for record in found:
        assert record.state is TrialState.OK, record.reason
        assert record.labels == ("indicative", "random weights: acceptance is meaningless")
        metrics = {name: metric.value for name, metric in record.metrics.items()}
        assert metrics["output_tok_s"] == metrics["output_tok_s_device"]
        assert metrics["ttft_s_mean"] > 0
        assert metrics["concurrency_peak"] == 2
        assert metrics["decoder_rows_run"] > 0
        drafted = record.point.axes["draft_length"] > 0
        assert (metrics["acceptance_length"] is not None) == drafted
        texts.append({r.index: r.text_hash for r in record.requests if r.text_hash})
        for request in record.requests:
            assert request.output_tokens == request.requested_output_tokens
    one, other = ({i: t for i, t in text.items() if i < 2} for text in texts)
    assert one == other  # greedy: drafts change when tokens come, never which


def test_replicas_serve_one_load_and_stop_with_the_sweep(toy):
    (record,) = sweep(toy, engine={"data_parallel_size": 2, "draft_length": 0})
    assert record.state is TrialState.OK, record.reason
    assert {r.replica for r in record.requests} == {0, 1}


def test_an_engine_apart_says_what_one_in_this_process_says(toy):
    said = []
    for start in (open_serving, open_apart):
        built = plan(toy, engine={"draft_length": 5})
        (record,) = run(built, lambda s=start: InProcessTarget(s), observer=NoObserver())
        assert record.state is TrialState.OK, record.reason
        assert {r.replica for r in record.requests} == {None}
        assert record.metrics["decoder_rows_run"].value > 0
        said.append({r.index: r.text_hash for r in record.requests if r.index < 2 and r.text_hash})
    assert said[0] == said[1]
    assert not multiprocessing.active_children()


def test_a_poll_of_an_engine_apart_waits_no_longer_than_it_is_told(toy):
    target = InProcessTarget(open_apart)
    target.open(plan(toy, engine={"draft_length": 0}).engine)
    try:
        waited = []
        target._serving.step = lambda timeout_s: waited.append(timeout_s) or []
        asked = SamplingParams(max_tokens=4)
        prompt = (5, 6, 7)
        target.submit(Request(request_id=RequestId("r"), prompt_token_ids=prompt, sampling=asked))
        assert target.poll(0.002) == []
        assert waited == [0.002]
    finally:
        target.close()


def test_a_text_workload_is_tokenised_by_the_checkpoint(toy, tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "Größe"}\n', encoding="utf-8")
    workload = {"name": "t", "kind": "text", "path": str(path), "output_tokens": 4}
    built = plan(toy, workloads=[workload])
    (trial,) = planned(built, target_factory(built))
    assert bytes(trial.workload.item(0, "s").prompt_token_ids).decode() == "Größe"


def test_what_the_model_refuses_is_said_before_anything_starts(toy, tmp_path):
    for engine, kind, said in (
        ({"draft_length": 6}, ConfigError, "Use 0 to 5"),
        ({"replay_keep_tokens": 33}, ConfigError, "Use at least"),
        ({"max_model_len": 10**6}, ConfigError, "Use at most"),
        ({"model": str(tmp_path / "none")}, CheckpointError, "no such checkpoint"),
    ):
        built = plan(toy, engine=engine)
        with pytest.raises(kind, match=said):
            planned(built, target_factory(built))


def test_a_checkpoint_that_lacks_a_tensor_is_refused_at_planning(toy, tmp_path):
    built = plan(toy, engine={"model": str(lacking(toy, tmp_path))})
    with pytest.raises(CheckpointError, match="is missing"):
        planned(built, target_factory(built))


def test_a_checkpoint_that_vanishes_after_the_planning_fails_its_trials(toy, tmp_path):
    copy = shutil.copytree(toy, tmp_path / "copy")
    built = plan(toy, engine={"model": str(copy)}, axes=[{"product": {"draft_length": [0, 5]}}])
    records = run(built, target_factory(built), observer=NoObserver())
    assert next(records).state is TrialState.OK
    shutil.rmtree(copy)
    lost = next(records)
    assert lost.state is TrialState.FAILED
    assert "no such checkpoint" in lost.reason


def lacking(toy, tmp_path):
    """The toy checkpoint without one tensor."""
    from safetensors.torch import load_file, save_file

    copy = shutil.copytree(toy, tmp_path / "lacking")
    (path,) = copy.glob("*.safetensors")
    tensors = load_file(path)
    tensors.pop(sorted(tensors)[0])
    save_file(tensors, path)
    return copy


def test_an_engine_without_room_is_a_failed_trial(toy):
    (record,) = sweep(toy, engine={"memory_fraction": 1e-9})
    assert record.state is TrialState.FAILED
    assert "did not start" in record.reason
    assert record.engine_log


def test_a_group_that_lost_a_replica_is_no_longer_what_is_tested(toy):
    target = InProcessTarget()
    engine = plan(toy, engine={"data_parallel_size": 2, "draft_length": 0}).engine
    before = set(multiprocessing.active_children())
    target.open(engine)
    try:
        started = set(multiprocessing.active_children()) - before
        assert len(started) == 2
        next(iter(started)).kill()
        for index in range(2):
            target.submit(
                Request(
                    request_id=RequestId(f"r{index}"),
                    prompt_token_ids=(5, 6, 7),
                    sampling=SamplingParams(max_tokens=100, ignore_eos=True),
                )
            )
        with pytest.raises(TargetError, match="lost a replica"):
            for _ in range(1000):
                target.poll(0.05)
        assert "event=failure" in target.log_tail()
    finally:
        target.close()
    assert not set(multiprocessing.active_children()) - before
