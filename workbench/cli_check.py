"""Commands that check and make: verify, make-checkpoint, doctor."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from workbench.cli_options import JsonOption
from workbench.cli_output import err, say, say_json, show_table
from workbench.errors import UsageError
from workbench.invocation import DEFAULT_STORE

if TYPE_CHECKING:
    from engine.verify import KeyResult

HEADERS = ("group", "fed", "passed", "worst key", "differs by", "limit")


def verify(
    directory: Annotated[Path, typer.Argument(help="A checkpoint with outputs.safetensors.")],
    every: Annotated[bool, typer.Option("--all", help="Show every compared key.")] = False,
    json: JsonOption = False,
) -> None:
    """Run the engine on a checkpoint and print its largest difference from stored outputs."""
    from dataclasses import asdict

    from engine.verify import verify as run_verify

    err.print(
        f"running {directory} at once, in chunks and served; this takes minutes", markup=False
    )
    with err.status("comparing"):
        found = run_verify(directory)
    show_table(str(directory), HEADERS, summary_rows(found.rows), whole=("group",))
    if every:
        cells = [_key_cells(row) for row in found.rows]
        show_table("every key", ("key", "fed", "difference", "limit", "within", "result"), cells)
    say(verdict(found.rows), style=None if found.passed else "red")
    if json:
        say_json({"passed": found.passed, "rows": [asdict(row) for row in found.rows]})
    if not found.passed:
        raise typer.Exit(1)


def summary_rows(rows: Sequence[KeyResult]) -> list[tuple[str, ...]]:
    """One row a group of keys (fp32, qdq) and feeding: how many passed, and the worst key."""
    groups: dict[tuple[str, str, bool], list[KeyResult]] = {}
    for row in rows:
        group = (row.key.partition(".")[0], str(row.feeding), row.judged)
        groups.setdefault(group, []).append(row)
    found = []
    for (group, feeding, judged), members in groups.items():
        worst = max(members, key=_nearness)
        passed = f"{sum(row.passed for row in members)} of {len(members)}"
        name = worst.key.partition(".")[2]
        result = passed if judged else "reported"
        found.append((group, feeding, result, name, f"{worst.difference:.2g}", _limit(worst)))
    return found


def verdict(rows: Sequence[KeyResult]) -> str:
    """What was judged and whether it passed; what was only reported, and why."""
    judged = [row for row in rows if row.judged]
    passed = sum(row.passed for row in judged)
    reported = [row for row in rows if not row.judged]
    words = "passed" if passed == len(judged) else "past the tolerance"
    text = f"{words}: {passed} of {len(judged)} judged comparisons are within their limits"
    if not reported:
        return f"{text}; nothing was only reported"
    groups = "/".join(sorted({row.key.partition(".")[0] for row in reported}))
    why = "; ".join(dict.fromkeys(row.why for row in reported))
    return f"{text}; {len(reported)} {groups} comparisons were only reported ({why})"


def _nearness(row: KeyResult) -> float:
    """How much of its limit a key uses; any difference of ids is past theirs."""
    if row.tolerance:
        return row.difference / row.tolerance
    return math.inf if row.difference else 0.0


def _limit(row: KeyResult) -> str:
    return f"{row.tolerance:.2g}"


def _key_cells(row: KeyResult) -> tuple[str, ...]:
    share = "" if row.share_within is None else f"{row.share_within:.1%}"
    result = ("passed" if row.passed else "failed") if row.judged else "reported"
    return (row.key, str(row.feeding), f"{row.difference:.2g}", _limit(row), share, result)


def make_checkpoint(
    kind: Annotated[str, typer.Argument(help="toy or small")],
    directory: Annotated[Path, typer.Argument(help="A new or empty folder.")],
    seed: Annotated[int, typer.Option(help="The same seed gives the same bytes.")] = 0,
    json: JsonOption = False,
) -> None:
    """Write a random checkpoint in the released form. What it says means nothing."""
    from engine.make_checkpoint import Kind
    from engine.make_checkpoint import make_checkpoint as make

    kinds = get_args(Kind)
    if kind not in kinds:
        raise UsageError(
            f"there is no kind {kind!r}.",
            where="make-checkpoint",
            remedy=f"Choose among {', '.join(kinds)}.",
        )
    made = make(cast("Kind", kind), seed=seed, directory=directory)
    say(f"wrote {made}")
    if json:
        say_json({"directory": str(made)})


def doctor(
    store: Annotated[Path, typer.Option("--store", help="Where results would go.")] = DEFAULT_STORE,
    devices: Annotated[
        bool, typer.Option("--devices", help="Put load on a device and hold its meters together.")
    ] = False,
    seconds: Annotated[
        float, typer.Option(min=1.0, max=600.0, help="How long that load runs.")
    ] = 5.0,
    model: Annotated[
        str, typer.Option(help="Whose kernels are told: a checkpoint, or a shipped one.")
    ] = "nano",
    json: JsonOption = False,
) -> None:
    """Say what this machine has, what is missing, and what each of it means."""
    from workbench.doctor import examine, examine_devices
    from workbench.doctor_kernels import kernels_of

    measured = examine_devices(seconds) if devices else ()
    findings = [*examine(store), *kernels_of(model), *measured]
    rows = [(f.level, f.subject, f.message) for f in findings]
    show_table("doctor", ("", "subject", "finding"), rows)
    if json:
        say_json([{"level": f.level, "subject": f.subject, "message": f.message} for f in findings])
    if any(finding.level == "error" for finding in findings):
        raise typer.Exit(1)


COMMANDS: dict[str, Callable[..., None]] = {
    "verify": verify,
    "make-checkpoint": make_checkpoint,
    "doctor": doctor,
}
