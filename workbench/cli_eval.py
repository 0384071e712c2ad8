"""The command that asks questions: eval."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli_options import BudgetOption, JsonOption, StoreOption
from workbench.cli_output import say, show_table
from workbench.errors import UsageError
from workbench.invocation import DEFAULT_STORE, command_line

if TYPE_CHECKING:
    from experiments.plan import Plan
    from workbench.store import Run

SetArgument = Annotated[
    str | None, typer.Argument(help="A set by its name, or a JSONL file; left out: list the sets.")
]
ModelOption = Annotated[
    str | None, typer.Option(help="A checkpoint; with --url, what the server calls it. [nano]")
]
UrlOption = Annotated[
    str | None, typer.Option(help="A server, without /v1, in place of our own engine.")
]
TokenizerOption = Annotated[
    Path | None, typer.Option(help="With --url: the model's tokenizer.json.")
]
ThinkingOption = Annotated[bool, typer.Option("--thinking", help="Let the model think first.")]
JudgeOption = Annotated[
    str, typer.Option(help="rules, or llm: the model that EVAL_JUDGE_* variables name.")
]
CodeOption = Annotated[
    bool, typer.Option("--allow-code", help="Run the programs that the model writes.")
]


def evaluate(  # noqa: PLR0913 - its options
    name: SetArgument = None,
    model: ModelOption = None,
    draft_length: Annotated[int | None, typer.Option(help="Tokens drafted a step.")] = None,
    samples: Annotated[int, typer.Option(help="Answers to each question.")] = 1,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    max_tokens: Annotated[int, typer.Option(help="Most tokens of an answer.")] = 512,
    limit: Annotated[int | None, typer.Option(help="Only so many questions.")] = None,
    batch_size: Annotated[int, typer.Option(help="Requests in flight.")] = 8,
    thinking: ThinkingOption = False,
    judge: JudgeOption = "rules",
    allow_code: CodeOption = False,
    url: UrlOption = None,
    api: Annotated[str, typer.Option(help="With --url: how it is spoken to.")] = "chat_completions",
    tokenizer: TokenizerOption = None,
    store: StoreOption = DEFAULT_STORE,
    budget: BudgetOption = None,
    json: JsonOption = False,
) -> None:
    """Ask a set of questions and judge the answers: accuracy beside the speed of the same trial."""
    from workbench.cli_plan import budget_of
    from workbench.cli_run import measure_job
    from workbench.runs import begin, outlook
    from workbench.store import Store

    if name is None:
        _list_sets()
        return
    budget_s = budget_of(budget)
    fields = {
        "set": name,
        "samples": samples,
        "temperature": temperature,
        "output_tokens": max_tokens,
        "max_questions": limit,
        "thinking": thinking,
        "judge": judge,
        "allow_code": allow_code,
    }
    engine = {"model": model or "nano"}
    target: dict[str, object] = {"engine": _with_drafts(engine, draft_length)}
    if url is not None:
        target = _server(url, model, api, tokenizer, draft_length)
    plan = _plan(fields, target, batch_size)
    job = begin(outlook(plan, Store(store)), Store(store), budget_s=budget_s)
    code = measure_job(job, json=False)
    stored = job.writer.run.refresh()
    _say_trials(stored, store, json=json)
    raise typer.Exit(code)


def _list_sets() -> None:
    from workbench.evals import SETS

    show_table("sets", ("name", "what it holds"), list(SETS.items()), whole=("name",))
    say("Or a JSONL of your own; experiments/plans/README.md says what a line holds.")


def _with_drafts(engine: dict[str, str], draft_length: int | None) -> dict[str, object]:
    return {**engine} if draft_length is None else {**engine, "draft_length": draft_length}


def _server(
    url: str, model: str | None, api: str, tokenizer: Path | None, draft_length: int | None
) -> dict[str, object]:
    if model is None:
        raise UsageError("is missing.", where="--model", remedy="Say what the server calls it.")
    if draft_length is not None:
        raise UsageError(
            "is set where the server was started, not here.",
            where="--draft-length",
            remedy="Leave it out.",
        )
    named = {"tokenizer": str(tokenizer)} if tokenizer is not None else {}
    return {"target": "http", "http": {"url": url, "model": model, "api": api, **named}}


def _plan(fields: dict[str, object], target: dict[str, object], batch_size: int) -> Plan:
    """One trial of that set, under the quick protocol."""
    from experiments.plan import load_plan

    stem = Path(str(fields["set"])).stem
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in stem)
    return load_plan(
        {
            "name": f"eval-{safe}"[:80],
            "question": f"how many questions of {stem} are answered right, and how fast?",
            **target,
            "load": {"kind": "closed", "batch_size": batch_size},
            "workloads": [{"name": safe or "eval", "kind": "eval", **fields}],
        },
        base_dir=Path.cwd(),
    )


def _say_trials(run: Run, store: Path, *, json: bool) -> None:
    from workbench.cli_answers import show_answers
    from workbench.cli_output import say_json

    records = [run.trial(trial_id) for trial_id in sorted(run.trial_ids())]
    for record in records:
        show_answers(record)
    trial = command_line("show", run.run_id, "--trial", "ID", store=store)
    say(f"every answer: evals.parquet of the trial; `{trial}` shows it again")
    if json:
        say_json({"run_id": run.run_id, "path": str(run.folder), "trials": run.judged()})


COMMANDS: dict[str, Callable[..., None]] = {"eval": evaluate}
