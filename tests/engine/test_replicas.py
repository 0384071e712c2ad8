import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from engine.config import EngineConfig
from engine.errors import CheckpointError, ReplicaError, RequestError
from engine.llm import LLM
from engine.replica_process import StepNews
from engine.replicas import ReplicaGroup
from engine.request import FinishReason, Request, RequestOutput, SamplingParams
from engine.stats import EngineStats
from tests.fakes.hash_model import HashSource
from tests.fakes.sequential import expected_text

GREEDY = SamplingParams(temperature=0.0, max_tokens=10, ignore_eos=True)
VALUES = {"dtype": "float64", "block_tokens": 4, "replay_mode": "off", "data_parallel_size": 2}
CONFIG = EngineConfig(model="hash", **VALUES)


def ask(name, prompt, **params):
    return Request(
        request_id=name, prompt_token_ids=tuple(prompt), sampling=replace(GREEDY, **params)
    )


def run(group):
    outputs = []
    while group.has_unfinished():
        outputs += group.step()
    return outputs


def text(outputs, name):
    return [t for o in outputs if o.request_id == name for t in o.token_ids]


def pids(group):
    return [replica.process.pid for replica in group._replicas]


@pytest.fixture(scope="module")
def group():
    group = ReplicaGroup(CONFIG, source=HashSource())
    yield group
    group.close()


def test_requests_are_spread_and_say_what_one_engine_says(group):
    prompts = {f"r{i}": [5 + i, 6, 7] for i in range(7)}
    for name, prompt in prompts.items():
        group.add_request(ask(name, prompt))
    assert [group.replica_of(name) for name in prompts] == [0, 1, 0, 1, 0, 1, 0]
    outputs = run(group)
    for name, prompt in prompts.items():
        assert text(outputs, name) == expected_text(prompt, GREEDY)[0]
    assert group.stats().output_tokens == 70
    assert group.stats().blocks_used == 0


def test_a_group_refuses_what_an_engine_refuses(group):
    with pytest.raises(RequestError, match="empty"):
        group.add_request(ask("a", []))
    group.add_request(ask("a", [5]))
    with pytest.raises(RequestError, match="in use"):
        group.add_request(ask("a", [5]))
    run(group)


def test_what_is_added_together_is_one_batch_of_its_replica(group):
    steps_before = group.stats().steps
    for i in range(8):
        group.add_request(ask(f"b{i}", [5, 6 + i], max_tokens=2))
    outputs = run(group)
    first = {name: next(o for o in outputs if o.request_id == name) for name in ("b0", "b2", "b6")}
    assert len({output.first_scheduled_ns for output in first.values()}) == 1
    assert group.stats().steps - steps_before == 2 * 2  # of each replica: a prefill, a decode


def test_news_of_a_step_travel_whole():
    one = RequestOutput(request_id="a", token_ids=(1,), time_ns=5, arrived_ns=1)
    other = one._replace(request_id="b", token_ids=(), error="x", finish_reason=FinishReason.ERROR)
    for outputs in ((), (one,), (one, one), (one, other), (other, one, other)):
        news = StepNews(outputs, EngineStats(steps=3))
        assert pickle.loads(pickle.dumps(news)) == news


def test_what_a_replica_logs_is_logged_here(caplog):
    with caplog.at_level(logging.INFO, logger="engine"):
        ReplicaGroup(replace(CONFIG, data_parallel_size=1), source=HashSource()).close()
    assert any("replica=0 resolved overlap=" in line for line in caplog.messages)


def test_an_aborted_request_ends_once(group):
    group.add_request(ask("a", [5], max_tokens=60))
    group.add_request(ask("b", [6]))
    assert group.abort("a")
    outputs = run(group)
    ends = [o.finish_reason for o in outputs if o.finished and o.request_id == "a"]
    assert ends in ([FinishReason.ABORT], [FinishReason.LENGTH])
    assert text(outputs, "b") == expected_text([6], GREEDY)[0]
    assert not group.abort("a")


def test_a_dead_replica_ends_its_own_requests_only():
    group = ReplicaGroup(CONFIG, source=HashSource())
    os.kill(pids(group)[0], signal.SIGSTOP)  # holds its requests until it dies
    for i in range(4):
        group.add_request(ask(f"r{i}", [5 + i]))
    os.kill(pids(group)[0], signal.SIGKILL)
    outputs = run(group)
    ends = {o.request_id: o for o in outputs if o.finished}
    for name in ("r0", "r2"):
        assert ends[name].finish_reason == FinishReason.ERROR
        assert "replica 0 ended with exit code -9" in ends[name].error
    for name, prompt in (("r1", [6]), ("r3", [8])):
        assert text(outputs, name) == expected_text(prompt, GREEDY)[0]
    (failure,) = group.failures()
    assert isinstance(failure, ReplicaError)

    group.add_request(ask("later", [5]))
    assert group.replica_of("later") == 1
    assert text(run(group), "later") == expected_text([5], GREEDY)[0]

    os.kill(pids(group)[1], signal.SIGKILL)
    group.step(timeout_s=10)
    with pytest.raises(ReplicaError, match="replica 0"):
        group.add_request(ask("too late", [5]))
    group.close()


def test_a_start_up_error_keeps_its_type_and_leaves_no_process(group):
    before = set(psutil.Process().children(recursive=True))
    with pytest.raises(CheckpointError, match=r"head\.weight"):
        LLM("hash", source=HashSource(refuse=True), **VALUES)
    assert set(psutil.Process().children(recursive=True)) <= before


PARENT = """
    import os, signal
    from engine.config import EngineConfig
    from engine.replicas import ReplicaGroup
    from tests.fakes.hash_model import HashSource

    if __name__ == "__main__":
        config = EngineConfig(model="hash", dtype="float64", replay_mode="off",
                              data_parallel_size=2)
        group = ReplicaGroup(config, source=HashSource())
        print(*[replica.process.pid for replica in group._replicas], flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_replicas_end_with_a_parent_that_is_killed(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(textwrap.dedent(PARENT))
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=120,
    )
    children = [int(word) for word in done.stdout.split()]
    assert len(children) == 2
    deadline = time.monotonic() + 20
    while any(_is_alive(pid) for pid in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_is_alive(pid) for pid in children)


def _is_alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.timeout(60)
def test_a_flood_of_requests_with_long_answers_does_not_stall_the_pipes():
    group = ReplicaGroup(CONFIG, source=HashSource())
    for replica in group._replicas:  # a few orders fill one direction, a few answers the other
        with socket.socket(fileno=os.dup(replica.pipe.fileno())) as ours:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    asked = {"max_tokens": 1, "prompt_logprobs": True, "logprobs": 23}
    for i in range(120):
        group.add_request(ask(f"r{i}", [(n * i + n) % 20 + 2 for n in range(60)], **asked))
    outputs = run(group)
    group.close()
    assert sum(output.finished for output in outputs) == 120
    assert len(pickle.dumps(outputs[:60])) > 2**20  # more than a socket's own buffer


def test_closing_does_not_wait_for_a_replica_that_has_much_to_say():
    group = ReplicaGroup(CONFIG, source=HashSource())
    prompt = [n % 20 + 2 for n in range(60)]
    for i in range(60):
        group.add_request(ask(f"r{i}", prompt, prompt_logprobs=True, logprobs=23, max_tokens=1))
    group.step(timeout_s=0)
    processes = [replica.process for replica in group._replicas]
    group.close()
    assert [process.exitcode for process in processes] == [0, 0]  # not killed
