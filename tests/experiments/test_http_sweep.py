"""Plans with target: http, from the YAML to the record."""

import socket
import subprocess
import sys

import pytest

from engine.errors import ConfigError
from experiments.calibration import calibration_of
from experiments.environment import given_by
from experiments.errors import PlanError, TargetError, WorkloadError
from experiments.load import PhaseResult
from experiments.load_tally import LoadTally
from experiments.observe import NoObserver
from experiments.plan import load_plan
from experiments.plan_calibration import plan_calibrations
from experiments.records import TelemetrySample, TokenSource, TrialState
from experiments.sweep import planned, run
from experiments.targets.factory import target_factory
from experiments.targets.null_server import Answer, at_once
from tests.experiments.records import failed, request
from tests.fakes.openai_server import TOKENIZER, Say, acts, answering, serving

LIMITS = {"client_lag_s": None, "client_cpu_percent": None}  # of a host that tests share


def http_plan(url="http://127.0.0.1:9", *, http=None, **fields):
    return load_plan(
        {
            "name": "t",
            "target": "http",
            "http": {
                "url": url,
                "model": "null",
                "api": "completions",
                "vocab_size": 512,
                **(http or {}),
            },
            "workloads": [
                {"name": "s", "kind": "synthetic", "prompt_tokens": 8, "output_tokens": 4}
            ],
            "protocol": {"name": "quick", "measured_s": 0.5, "measured_requests": 8},
            "gates": LIMITS,
            **fields,
        }
    )


def records_of(plan):
    return list(run(plan, target_factory(plan), observer=NoObserver()))


def ids(plan):
    return [trial.trial_id for trial in planned(plan, target_factory(plan))]


def test_a_sweep_over_a_server_is_measured_calibrated_and_stored_with_its_counts():
    with serving(answering(Say(0.03, 1), Say(0.01, 3))) as server:
        plan = http_plan(
            server.url, clients=2, axes=[{"product": {"batch_size": [2, 4]}}], http={"devices": 4}
        )
        records = records_of(plan)
    assert [r.state for r in records] == [TrialState.OK] * 2, [r.reason for r in records]
    for record in records:
        found = record.metrics
        assert found["ttft_s_p50"].value == pytest.approx(0.03, abs=0.025)
        assert found["output_tok_s_device"].value * 4 == pytest.approx(found["output_tok_s"].value)
        assert record.calibration is not None
        assert record.calibration.processes == 2
        assert record.calibration.lag_p99_s is None  # a closed loop has no schedule
        assert {r.token_source for r in record.requests} == {TokenSource.USAGE}
        assert {r.server_prompt_tokens for r in record.requests} == {8}
        assert {g.name for g in record.gates} >= {"client_processes"}
        assert found["client_cpu_percent"].value is not None or record.window_s[1] < 1
        assert record.point.engine["model"] == "null"
        assert record.point.checkpoint is None


def test_a_storm_of_errors_fails_the_trial_and_names_the_first():
    def storm(ask):
        return Answer(status=500, body=b"out of luck")

    with serving(storm) as server:
        [record] = records_of(http_plan(server.url))
    assert record.state is TrialState.FAILED
    assert "HTTP 500: out of luck" in (record.reason or "")


def test_errors_of_some_requests_make_the_trial_invalid():
    def now_and_then(ask):
        if ask.number % 5 == 4:
            return Answer(status=429, body=b"slow down")
        return Answer(acts=acts(ask.api, [Say(0.01, 4)], prompt=8))

    with serving(now_and_then) as server:
        [record] = records_of(http_plan(server.url, load={"kind": "closed", "batch_size": 2}))
    assert record.state is TrialState.INVALID
    assert "error_rate" in (record.reason or "")
    assert {r.error_kind for r in record.requests} == {None, "http_429"}


def test_texts_and_sessions_go_to_a_server_that_takes_text():
    with serving(at_once) as server:
        plan = http_plan(
            server.url,
            http={"api": "chat_completions", "tokenizer": TOKENIZER},
            load={"kind": "sessions", "concurrency": 1, "turns": 2},
            protocol={"name": "quick", "measured_s": 0.3, "measured_requests": 4},
            gates={**LIMITS, "prompt_length_mismatch": None, "cache_hit_rate": None},
        )
        [record] = records_of(plan)
        said = [note.ask.body["messages"][0]["content"] for note in server.notes]
    assert record.state is TrialState.OK, record.reason
    assert {r.turn for r in record.requests if r.session is not None} >= {0, 1}
    second = next(r for r in record.requests if r.turn == 1)
    assert second.prompt_tokens > 8 + 4  # what was said so far is in the prompt
    assert all(isinstance(text, str) and text for text in said)


def test_a_server_that_is_not_there_fails_the_trial_and_says_what_to_do():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    [record] = records_of(http_plan(f"http://127.0.0.1:{port}"))
    assert record.state is TrialState.FAILED
    assert "does not answer" in (record.reason or "")


def test_counters_that_cannot_be_read_are_missing_and_lose_no_trial():
    with serving(at_once) as server:  # it has no such page
        [record] = records_of(http_plan(server.url, http={"metrics_path": "/counters"}))
    assert record.state is TrialState.OK, record.reason
    ratio = record.metrics["server_tpot_ratio"]
    assert ratio.value is None
    assert "could not be read" in (ratio.reason or "")
    assert "404" in (ratio.reason or "")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"engine": {"draft_length": 3}}, "engine: draft_length.*not started by us"),
        ({"axes": [{"product": {"tp": [1, 2]}}]}, "axes: tp.*not started by us"),
        ({"axes": [{"product": {"draft_length": [1]}}]}, "draft_length.*not started by us"),
        ({"clients": 2}, "cannot share 1 requests"),
        ({"clients": 2, "load": {"kind": "batch", "batch_size": 4}}, "a round waits"),
        ({"clients": 0}, "clients"),
        ({"http": {"api": "chat_completions"}}, r"http\.tokenizer"),
        ({"http": {"vocab_size": None}}, "random ids need a vocabulary"),
        ({"http": {"url": "host:80"}}, r"http\.url"),
        ({"http": {"headers": {"Authorization": "Bearer x"}}}, "key_env"),
        ({"http": {"nonsense": 1}}, "nonsense"),
        ({"http": {"url": "http://host:99999"}}, r"http\.url.*no address"),
        ({"http": {"url": "http://[::1"}}, r"http\.url.*no address"),
        ({"http": {"url": f"http://{'a' * 300}"}}, r"http\.url.*no address"),
        ({"http": {"url": "http://:80"}}, "names no host"),
        ({"http": {"url": "http://me:pass@host"}}, "key_env"),
        ({"http": {"url": "http://host/?key=1"}}, "after the path"),
        ({"http": {"ready_path": "v1/models"}}, "ready_path"),
        ({"http": {"metrics_path": "met rics"}}, "metrics_path"),
        ({"http": {"vocab_size": 10**12}}, "vocab_size"),
        ({"http": {"headers": {"X-A": "b\r\nX-B: c"}}}, "X-A.*no header may hold"),
        ({"http": {"headers": {"X-A": "\u2603"}}}, "X-A.*no header may hold"),
        ({"http": {"headers": {"Content-Length": "5"}}}, "set by the client"),
        ({"http": {"body": {"n": 3}}}, "n is settled by"),
        ({"http": {"body": {"prompt": "the same"}}}, "prompt is settled by"),
        ({"target": "simulated"}, "go together"),
    ],
)
def test_what_a_server_cannot_be_asked_is_refused_before_anything_runs(fields, said):
    with pytest.raises((PlanError, WorkloadError), match=said):
        ids(http_plan(**fields))


def test_an_engine_of_ours_has_one_client():
    with pytest.raises(PlanError, match="clients needs target: http"):
        load_plan({"name": "t", "clients": 2, "workloads": [{"name": "s", "kind": "synthetic"}]})


def test_the_environment_of_our_engine_is_not_laid_into_a_plan_on_a_server():
    assert given_by(http_plan(), {"DEEPINFER_USE_NEXTN_DECODE": "3"}) == {}
    with pytest.raises(ConfigError):
        given_by(
            load_plan({"name": "t", "workloads": [{"name": "s", "kind": "synthetic"}]}),
            {"DEEPINFER_X": "1"},
        )


def test_a_trial_is_another_one_when_what_is_asked_of_the_server_differs():
    base = ids(http_plan())
    assert ids(http_plan()) == base
    assert ids(http_plan(http={"model": "other"})) != base
    assert ids(http_plan(http={"usage": "last"})) != base
    assert ids(http_plan(http={"declared": {"tp": 8}})) != base
    assert ids(http_plan(http={"key_env": "A_KEY"})) == base
    assert ids(load_plan(http_plan().document())) == base


def test_the_tokenizer_is_looked_up_beside_the_plan(tmp_path):
    plan = http_plan(http={"tokenizer": "tokenizer.json"})
    beside = load_plan(
        {**plan.document(), "http": {**plan.document()["http"], "tokenizer": "t.json"}},
        base_dir=tmp_path,
    )
    assert beside.http.tokenizer == str(tmp_path / "t.json")


def test_a_script_without_a_main_guard_is_told_to_have_one(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import workbench as wb\nwith wb.null_server() as url:\n    print(url)\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.returncode == 1
    assert "if __name__ == '__main__':" in done.stderr.splitlines()[-1]
    assert "freeze_support" not in done.stderr


def test_each_load_of_a_plan_is_calibrated_once_and_without_its_server():
    plan = http_plan(
        load={"kind": "constant", "rate": 50.0},
        axes=[{"product": {"rate": [40.0, 60.0]}}],
        repeats=2,
    )
    found = list(plan_calibrations(plan))
    assert [trial.point.axes["rate"] for trial, _ in found] == [40.0, 60.0]
    for trial, calibration in found:
        assert calibration.achieved_request_s == pytest.approx(trial.point.axes["rate"], rel=0.2)
        assert calibration.lag_p99_s is not None
    with pytest.raises(PlanError, match="no client of its own"):
        list(
            plan_calibrations(
                load_plan({"name": "t", "workloads": [{"name": "s", "kind": "synthetic"}]})
            )
        )


def test_a_calibration_is_what_the_phase_says():
    requests = tuple(
        request([(i + 0.002, 1)], sent_s=i + 0.001, index=i, intended_s=float(i)) for i in range(10)
    )
    cpu = tuple(
        TelemetrySample(time_s=float(i), client_cpu_percent=p) for i, p in enumerate((10, 30))
    )
    phase = PhaseResult(requests=requests, window_s=(0.0, 10.0), tally=LoadTally(), client_cpu=cpu)
    found = calibration_of(phase, 2)
    assert (found.requests, found.achieved_request_s, found.processes) == (10, 1.0, 2)
    assert found.overhead_p50_s == pytest.approx(0.001)
    assert found.lag_p99_s == pytest.approx(0.001)
    assert found.client_cpu_percent == 20
    with pytest.raises(TargetError, match="measured nothing: HTTP 500"):
        calibration_of(PhaseResult(requests=(failed(),), window_s=(0.0, 1.0), tally=LoadTally()), 1)
