"""The command that asks questions, from its options to the store."""

import pytest
from typer.testing import CliRunner

from tests.fakes.command import last_json, workbench
from workbench.cli import app
from workbench.store import Store


def test_the_command_asks_nano_and_stores_every_answer(here):
    result = workbench(
        "eval", "nano", "--limit", 6, "--max-tokens", 32, "--batch-size", 3, "--draft-length", 2,
        "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    run = Store("results").run(last_json(result)["run_id"])
    (trial_id,) = run.trial_ids()
    assert len(run.trial(trial_id).evals) == 6
    (trial,) = last_json(result)["trials"]
    assert trial["metrics"]["accuracy"]["n"] == 6
    assert run.points()["accuracy"].iat[0] == trial["metrics"]["accuracy"]["value"]
    front = workbench("pareto", "--x", "output_tok_s:max", "--y", "accuracy:max", "--json")
    assert front.exit_code == 0, front.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nano", "--url", "http://127.0.0.1:9"], "--model"),
        (["nano", "--url", "http://x", "--model", "m", "--draft-length", "1"], "--draft-length"),
        (["nono"], "no set"),
        (["nano", "--samples", "2"], "all alike"),
        (["nano", "--budget", "soon"], "--budget"),
        (["nano", "--judge", "llm"], "EVAL_JUDGE_BASE_URL"),
        (["nano", "--api", "smoke", "--url", "http://x", "--model", "m"], "api"),
    ],
)
def test_the_command_refuses_what_cannot_be_and_stores_nothing(here, arguments, words, monkeypatch):
    monkeypatch.delenv("EVAL_JUDGE_BASE_URL", raising=False)
    result = CliRunner().invoke(app, ["eval", *arguments])
    assert result.exit_code == 2
    assert words in result.stderr
    assert not (here / "results").exists()
