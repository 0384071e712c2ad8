"""vLLM as a target, on a stand-in for its package: how it serves, and how each end is told."""

from pathlib import Path

import pytest

from engine.request import Request, RequestId, SamplingParams
from experiments.errors import TargetDiedError, TargetError
from experiments.observe import NoObserver
from experiments.plan import load_plan
from experiments.records import TrialState
from experiments.sweep import run
from experiments.targets import peer_process
from experiments.targets.factory import target_factory
from experiments.targets.peer_target import PeerTarget
from tests.fakes.packages.vllm import DIES, ENDS_IT, HANGS, NEVER, POINTS_UP, SERVES, UNHEARD

STAND_IN = Path(__file__).parents[2] / "fakes/packages"


@pytest.fixture(autouse=True, scope="module")
def stand_in():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(STAND_IN))
        yield


@pytest.fixture(scope="module")
def shared(model_folder):
    """One for every test that leaves it as it was."""
    opened = PeerTarget("vllm")
    opened.open({"model": str(model_folder)})
    yield opened
    opened.close()


@pytest.fixture
def target(model_folder):
    """One that the test may end."""
    opened = PeerTarget("vllm")
    opened.open({"model": str(model_folder)})
    yield opened
    opened.close()


def request(way, name="r", tokens=3):
    return Request(
        request_id=RequestId(name),
        prompt_token_ids=(way, 9, 9),
        sampling=SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True),
    )


def outputs(target, count):
    """What came until so many requests ended."""
    found = []
    for _ in range(400):
        found += [received.output for received in target.poll(0.05)]
        if sum(output.finished for output in found) == count:
            return found
    raise AssertionError(f"only {found} came")


def test_an_answer_comes_token_by_token(shared):
    shared.submit(request(SERVES))
    found = outputs(shared, 1)
    assert [token for output in found for token in output.token_ids] == [0, 1, 2]
    assert str(found[-1].finish_reason) == "length"


def test_a_request_that_is_given_up_ends_with_abort_and_the_others_go_on(shared):
    shared.submit(request(NEVER, "slow"))
    shared.submit(request(SERVES, "quick"))
    outputs(shared, 1)
    shared.abort(RequestId("slow"))
    [last] = outputs(shared, 1)
    assert (last.request_id, str(last.finish_reason), last.error) == ("slow", "abort", None)
    shared.abort(RequestId("quick"))  # which has ended
    shared.submit(request(SERVES, "next"))
    assert {output.request_id for output in outputs(shared, 1)} == {"next"}


def test_a_request_that_the_engine_ends_with_an_error_is_a_failure(shared):
    shared.submit(request(ENDS_IT))
    [last] = outputs(shared, 1)
    assert str(last.finish_reason) == "error"
    assert "vLLM ended it" in last.error


def test_a_killed_process_is_told_with_its_last_words(target):
    target.submit(request(DIES))
    with pytest.raises(TargetDiedError, match=r"code 137; its last words: no room for one more"):
        outputs(target, 1)


def test_an_error_that_points_to_the_log_brings_what_stands_there_and_what_it_came_from(target):
    target.submit(request(POINTS_UP))
    with pytest.raises(TargetError) as caught:
        outputs(target, 1)
    said = str(caught.value)
    assert "it came from ValueError: a rank went away" in said
    assert said.endswith("its log says: RuntimeError: socket 3 is closed")


def test_an_engine_that_hangs_is_told_with_its_last_words(target, monkeypatch):
    monkeypatch.setattr(peer_process, "CONNECT_S", 1.0)
    target.submit(request(HANGS))
    while "waiting" not in target.log_tail():
        target.poll(0.05)
    with pytest.raises(TargetError, match=r"did not answer 'stats'.*waiting for a lock"):
        target.stats()


def test_a_trial_in_which_nothing_ended_in_time_says_so(model_folder, monkeypatch):
    monkeypatch.setattr("experiments.load.ABORT_WAIT_S", 60.0)  # on a busy host, too
    plan = load_plan({
        "name": "slow", "target": "vllm", "engine": {"model": str(model_folder)},
        "protocol": {"name": "quick", "measured_s": 0.1, "limit_s": 0.3, "drain_s": 0.3},
        "load": {"kind": "closed", "batch_size": 2},
        "workloads": [{"name": "s", "kind": "text", "path": "sample:texts",
                       "prompt_tokens": 8, "output_tokens": UNHEARD}],
    })  # fmt: skip
    [record] = run(plan, target_factory(plan), observer=NoObserver())
    assert record.state is TrialState.FAILED
    assert "2 did not end within the drain time and were cancelled" in record.reason
