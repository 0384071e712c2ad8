import json

from typer.testing import CliRunner

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
