"""Commands about plans: init, plan. And what a plan comes to, in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernels.errors import WorkbenchError
from workbench.cli_options import (
    BudgetOption,
    JsonOption,
    MaxTrials,
    RepeatsOption,
    StoreOption,
    WithoutOption,
)
from workbench.cli_output import say, say_json, show_table
from workbench.errors import UsageError
from workbench.figures_text import plural, value_text
from workbench.invocation import DEFAULT_STORE, command_line
from workbench.store import Store
from workbench.words import duration_words, point_words, seconds_of

if TYPE_CHECKING:
    from experiments.plan import Plan
    from workbench.runs import Outlook

MOST_TRIALS = 12  # that are listed unasked
TEMPLATE = Path(__file__).parent / "templates" / "plan.yaml"


def init(
    directory: Annotated[Path, typer.Argument(help="Where plan.yaml is written.")] = Path(),
) -> None:
    """Write a commented plan.yaml to start from."""
    from workbench.files import explained, write_file

    path = directory / "plan.yaml"
    with explained(directory):
        occupied = path.exists()
    if occupied:
        raise UsageError(
            "exists already and is not overwritten.",
            where=str(path),
            remedy="Choose another directory, or move the file away.",
        )
    with explained(directory):
        directory.mkdir(parents=True, exist_ok=True)
    write_file(path, TEMPLATE.read_bytes())
    look, measure = command_line("plan", path), command_line("run", path)
    say(f"wrote {path}; look at it with `{look}`, then `{measure}`")


def plan(  # noqa: PLR0913 - its options
    file: Annotated[Path, typer.Argument(help="A plan in YAML.")],
    store: StoreOption = DEFAULT_STORE,
    max_trials: MaxTrials = None,
    repeats: RepeatsOption = None,
    budget: BudgetOption = None,
    without: WithoutOption = None,
    every: Annotated[bool, typer.Option("--all", help="List every trial.")] = False,
    json: JsonOption = False,
) -> None:
    """Print the time and disk that a plan will take, engine starts, and its points.

    A plan for another machine is looked at all the same, every arm of it: what this machine lacks
    and what only that machine knows is said.
    """
    from experiments.arm_choice import without_arms

    asked = without_arms(loaded(file, max_trials, None, repeats), without or ())
    found = _looked_at(asked, Store(store))
    listed = None if every else Listed(most=MOST_TRIALS, more="`--all` lists them")
    show_outlook(found, budget_s=budget_of(budget), json=json, listed=listed)


def loaded(
    file: Path, max_trials: int | None, target: str | None = None, repeats: int | None = None
) -> Plan:
    """The plan with the options of the command line laid over it."""
    from experiments.plan import load_plan

    found = load_plan(file)
    options = {"max_trials": max_trials, "target": target, "repeats": repeats}
    changes = {name: value for name, value in options.items() if value is not None}
    return load_plan({**found.document(), **changes}) if changes else found


def narrowed(asked: Plan, without: list[str] | None) -> Plan:
    """The plan without those arms and without optional ones that cannot start here: those are said.

    PlanError for an arm that there is not.
    """
    from experiments.arm_choice import present, without_arms

    found, absent = present(without_arms(asked, without or ()))
    for arm, why in absent.items():
        say(f"note: the arm {arm} is left out: {why}", style="yellow")
    return found


def _looked_at(asked: Plan, store: Store) -> Outlook:
    """The plan without optional arms that cannot start here; for another machine with them all."""
    from experiments.arm_choice import present
    from workbench.runs import outlook

    found, absent = present(asked)
    whole = _elsewhere(asked, store) if absent else None
    what = "is left out" if whole is None else "cannot start on this machine"
    for arm, why in absent.items():
        say(f"note: the arm {arm} {what}: {why}", style="yellow")
    return outlook(found, store) if whole is None else whole


def _elsewhere(asked: Plan, store: Store) -> Outlook | None:
    """All of a plan for another machine; None for one for this, or that needs what is not here."""
    from workbench.preflight import missing_device
    from workbench.runs import outlook

    try:
        found = outlook(asked, store)
    except WorkbenchError:
        return None
    return None if missing_device(found) is None else found


def budget_of(text: str | None) -> float | None:
    """Seconds of `--budget 1h30m`; None for none. UsageError for anything else."""
    if text is None:
        return None
    seconds = seconds_of(text)
    if seconds is None:
        raise UsageError(
            f"{text!r} is no time.",
            where="--budget",
            remedy="Write hours, minutes and seconds, such as 4h, 90m or 1h30m.",
        )
    return seconds


@dataclass(frozen=True, kw_only=True)
class Listed:
    """How many trials are listed, and what to say of the others."""

    most: int
    more: str


SHORT = Listed(most=MOST_TRIALS, more="`--json` lists them")


def show_outlook(
    found: Outlook, *, budget_s: float | None, json: bool, listed: Listed | None = SHORT
) -> None:
    """What a plan costs, what to know of it, what its points are made of, and its points.

    All points where `listed` is None; as JSON too if asked.
    """
    say(f"{found.plan.name}: {found.plan.question}")
    _say_cost(found, budget_s)
    _say_notes(found)
    say_factors(found)
    _show_points(found, listed)
    if json:
        say_json(_document(found))


def _say_cost(found: Outlook, budget_s: float | None) -> None:
    say(cost_words(found))
    fitting = _fitting(found, budget_s)
    if fitting is not None:
        say(f"about {fitting} of them fit into the budget; `workbench resume` goes on")


def _say_notes(found: Outlook) -> None:
    from workbench.preflight import device_note

    say_environment(found)
    for note in found.agenda.notes:
        say(f"note: {note}", style="yellow")
    if (note := device_note(found)) is not None:
        say(f"note: {note}", style="yellow")
    else:
        say_memory(found)


def say_memory(found: Outlook) -> None:
    """What may not fit the memory that is free now."""
    from workbench.preflight import memory_notes

    for note in memory_notes(found):
        say(f"note: {note}", style="yellow")


def cost_words(found: Outlook) -> str:
    """Trials, starts, time and disk, and what the estimate rests on."""
    most = "at most " if len(found.trials) != found.agenda.at_most or _may_stop(found) else ""
    trials = f"{most}{found.agenda.at_most} trials, {found.engine_starts} engine starts"
    time = f"{found.pace.about} {duration_words(found.estimate_s)}"
    return f"{trials}, {time}, about {found.estimate_bytes / 1e6:,.1f} MB ({found.pace.words})"


def _may_stop(found: Outlook) -> bool:
    return found.plan.search is not None or found.plan.repeat_rule.stop is not None


def _fitting(found: Outlook, budget_s: float | None) -> int | None:
    """How many trials a budget holds by the forecast; None where it holds all, or is none."""
    if budget_s is None or found.estimate_s <= budget_s:
        return None
    return int(found.agenda.at_most * budget_s / found.estimate_s)


def _show_points(found: Outlook, listed: Listed | None) -> None:
    if found.plan.search is not None:
        from experiments.search_spec import search_words

        say(search_words(found.plan.search))
        return
    rows = [
        (str(place), t.trial_id, point_words(t.point.axes), str(t.repeat))
        for place, t in enumerate(found.trials, start=1)
    ]
    shown = rows if listed is None else rows[: listed.most]
    show_table("trials", ("#", "trial", "point", "repeat"), shown, whole=("trial",))
    if listed is not None and len(shown) < len(rows):
        say(f"and {plural(len(rows) - len(shown), 'more trial')}; {listed.more}")


def say_factors(found: Outlook) -> None:
    """Of each workload its rows and content, and how a trace was scaled to the context."""
    workloads = {str(t.point.workload.get("name")): t.point.workload for t in found.trials}
    for name, facts in sorted(workloads.items()):
        said = [f"{facts['rows']} rows"] if "rows" in facts else []
        said.append(f"content: {facts.get('content')}")
        if "scale_used" in facts:
            said.append(f"lengths are those of the trace times {value_text(facts['scale_used'])}")
        say(f"workload {name}: {'; '.join(said)}")
    say_tokenizers(found)
    say_precisions(found)


def say_tokenizers(found: Outlook) -> None:
    """Whose tokenizer texts go through, and which checkpoints have none."""
    from engine.tokenizer import Tokenizer

    bytes_hash = Tokenizer.of_bytes().hash
    real = [t.facts for t in found.trials if not t.facts.simulated]
    models = {Path(str(facts.model)).name: facts.tokenizer_hash for facts in real}
    bare = sorted(name for name, hashed in models.items() if hashed == bytes_hash)
    if named := sorted({*models} - {*bare}):
        say(f"texts become tokens by the tokenizer of {', '.join(named)}")
    if bare:
        say(f"texts become tokens byte by byte: there is no tokenizer.json in {', '.join(bare)}")


def say_precisions(found: Outlook) -> None:
    """That arms compute in several precisions, while it costs nothing to mend."""
    arms: dict[str, set[str]] = {}
    for trial in found.trials:
        arm, dtype = trial.point.axes.get("arm"), trial.facts.configuration.get("dtype")
        if arm is not None and dtype is not None:
            arms.setdefault(str(dtype), set()).add(str(arm))
    if len({frozenset(names) for names in arms.values()}) > 1:
        told = "; ".join(f"{dtype}: {', '.join(sorted(names))}" for dtype, names in arms.items())
        say(f"note: arms differ in dtype ({told}); `workbench compare` refuses that, and "
            "`engine: {dtype: bfloat16}` of the arm mends it", style="yellow")  # fmt: skip


def say_environment(found: Outlook) -> None:
    """Which engine settings come from the environment; the stored plan holds them."""
    for name, variable in found.from_environment.items():
        value = found.plan.engine[name]
        say(f"note: {name}={value} comes from {variable} and is kept in the plan", style="yellow")


def _document(found: Outlook) -> dict[str, object]:
    from workbench.preflight import missing_device

    return {
        "trials": [
            {"trial_id": t.trial_id, "axes": t.point.axes, "repeat": t.repeat} for t in found.trials
        ],
        "at_most": found.agenda.at_most,
        "notes": list(found.agenda.notes),
        "engine_starts": found.engine_starts,
        "estimate_s": found.estimate_s,
        "estimate_bytes": found.estimate_bytes,
        "estimate_basis": found.pace.words,
        "missing_device": missing_device(found),
    }


COMMANDS: dict[str, Callable[..., None]] = {"init": init, "plan": plan}
