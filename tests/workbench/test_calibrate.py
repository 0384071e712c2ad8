import json

from typer.testing import CliRunner

from experiments.gate_limits import GateLimits
from experiments.plan_calibration import shortfalls
from experiments.records import Calibration
from workbench.cli import app
from workbench.cli_calibrate import calibration_cells

PLAN = """
name: tiny
target: http
http: {url: "http://127.0.0.1:9", model: "null", api: completions, vocab_size: 512}
load: {kind: constant, rate: 50}
workloads: [{name: s, kind: synthetic, prompt_tokens: 8, output_tokens: 4}]
protocol: {name: quick, measured_s: 0.5}
gates: {client_lag_s: null, client_cpu_percent: null, rate_shortfall: null} # tests share the host
"""


def test_the_command_prints_what_the_clients_of_a_plan_do_by_themselves(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN)
    result = CliRunner().invoke(app, ["calibrate", str(path), "--json"])
    assert result.exit_code == 0, result.output
    [found] = json.loads(result.stdout.splitlines()[-1])
    assert 20 <= found["requests"] <= 26
    assert found["processes"] == 1
    assert found["overhead_p50_s"] > 0
    assert (found["due_requests"], found["shortfalls"]) == (26, [])
    assert "the client can send this" in result.stdout
    assert "late p99" in result.stdout  # a header is never broken


def test_a_client_that_is_beyond_a_limit_is_told_and_ends_with_3(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN.replace("client_lag_s: null", "client_lag_s: 0.0"))
    result = CliRunner().invoke(app, ["calibrate", str(path)])
    assert result.exit_code == 3, result.output
    assert "the client cannot send this: sent" in result.output


def calibrated(**fields):
    return Calibration(
        requests=90,
        achieved_request_s=9.0,
        overhead_p50_s=0.001,
        overhead_p99_s=0.002,
        **{"lag_p99_s": 0.001, "client_cpu_percent": 20.0, **fields},
    )


def test_each_way_to_fall_short_is_named_and_a_limit_of_null_asks_for_nothing():
    short = calibrated(
        due_requests=100, sent_requests=90, lag_p99_s=0.0071, client_cpu_percent=81.0
    )
    rate, late, busy = shortfalls(short, GateLimits())
    assert "90 of 100" in rate
    assert "7.1 ms late" in late
    assert "81 % of a core" in busy
    off = GateLimits(rate_shortfall=None, client_lag_s=None, client_cpu_percent=None)
    assert shortfalls(short, off) == ()


def test_one_request_over_the_edge_and_a_closed_loop_fall_short_of_nothing():
    assert shortfalls(calibrated(due_requests=26, sent_requests=25), GateLimits()) == ()
    assert shortfalls(calibrated(lag_p99_s=None, client_cpu_percent=None), GateLimits()) == ()


def test_a_plan_without_clients_of_its_own_is_refused(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text("{name: t, workloads: [{name: s, kind: synthetic}]}")
    result = CliRunner().invoke(app, ["calibrate", str(path)])
    assert result.exit_code == 2
    assert "no client of its own" in result.output.replace("\n", " ")


def test_what_is_not_known_is_no_zero():
    cells = calibration_cells(
        Calibration(
            requests=3,
            achieved_request_s=1.0,
            overhead_p50_s=0.001,
            overhead_p99_s=0.002,
            lag_p99_s=None,
            client_cpu_percent=None,
        )
    )
    assert cells[-2:] == ("no schedule", "not sampled")
