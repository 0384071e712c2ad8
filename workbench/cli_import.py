"""The command that takes in what other tools measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli_options import JsonOption, StoreOption
from workbench.cli_output import say, say_error, say_json
from workbench.errors import UsageError
from workbench.figures_text import plural
from workbench.invocation import DEFAULT_STORE, command_line
from workbench.store import Run, Store

if TYPE_CHECKING:
    from workbench.importers.foreign import Format
    from workbench.importers.intake import Intake

MOST_NAMES = 5  # of files that one line tells


def import_(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE...", help="Result files, of any tool, or folders of them."),
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option(help="Devices behind each result, where the files do not tell.", min=1),
    ] = None,
    formats: Annotated[bool, typer.Option(help="List what can be imported.")] = False,
    store: StoreOption = DEFAULT_STORE,
    json: JsonOption = False,
) -> None:
    """Store what other tools measured as runs: which tool wrote a file is found by its content.

    Exits 1 where some of the files were refused, 2 where all were.
    """
    if formats:
        _show_formats(json=json)
        return
    if not files:
        raise UsageError("names no file.", where="FILE", remedy="`--formats` lists what there is.")
    from workbench.importers.intake import import_files

    found = import_files(files, Store(store), devices=gpus)
    _say(found, store)
    _say_refused(found)
    if json:
        say_json(_document(found))
    if found.refused:
        raise typer.Exit(1 if found.runs or found.taken or found.known else UsageError.exit_code)


def _show_formats(*, json: bool) -> None:
    from workbench.importers.catalogue import FORMATS

    rows = [(one.name, one.tool, one.title, one.expects, _seen_words(one)) for one in FORMATS]
    headers = ("format", "tool", "file", "recognised by", "checked on a real file")
    for name, _, title, expects, seen in rows:
        say(f"{name}: {title}; recognised by {expects}; checked on a real file: {seen}")
    if json:
        say_json([dict(zip(headers, row, strict=True)) for row in rows])


def _seen_words(one: Format) -> str:
    if not one.seen:
        return "no, as documented"
    return f"yes, but no {one.unseen}" if one.unseen else "yes"


def _say(found: Intake, store: Path) -> None:
    for path, run_id in found.known.items():
        say(f"{path}: is in the store already, as {run_id}", style="yellow")
    for path, first in found.copies.items():
        say(f"{path}: says what {first} says, and is not stored twice", style="yellow")
    for path, result in found.joined.items():
        say(f"{path}: is telemetry of {result}, and is stored with it")
    if found.left_out:
        names = _some([str(path) for path in found.left_out])
        say(f"left out, as no results (`--json` says why): {names}")
    for run in found.runs:
        say(f"{run.run_id}: {_told(run)}")
        for note in _notes(run):
            say(f"note: {note}", style="yellow")
    for run in found.taken:
        say(f"{run.run_id}: {_counts(run)}, a run of this workbench, is stored as it is")
    _say_where_to_look(found.runs, store)


def _say_where_to_look(runs: tuple[Run, ...], store: Path) -> None:
    if len(runs) > 1:
        say(f"look at them with `{command_line('dashboard', store=store)}`, page Imports")
    elif runs:
        say(f"look at it with `{command_line('show', runs[0].run_id, store=store)}`")


def _some(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def _say_refused(found: Intake) -> None:
    """Each file that was refused, with its reason; what to do about several, once."""
    advised: set[str | None] = set()
    for error in found.refused.values():
        say_error(error, advise=error.remedy not in advised)
        advised.add(error.remedy)
    if found.refused and (found.runs or found.taken or found.known):
        files, runs = sum(map(_files, found.runs)), len(found.runs)
        stored = f"stored {plural(files, 'file')} in {plural(runs, 'run')}"
        known = f", had {len(found.known)} before" if found.known else ""
        say(f"{stored}{known}, refused {len(found.refused)}", style="yellow")


def _files(run: Run) -> int:
    files = (run.origin or {}).get("files")
    return len(files) if isinstance(files, list) else 0


def _told(run: Run) -> str:
    summary = run.summary
    model = _named("model", summary.model)
    accelerator = _named("accelerator", summary.accelerator)
    return f"{(run.origin or {}).get('tool')}, {model} on {accelerator}, {_counts(run)}"


def _counts(run: Run) -> str:
    return ", ".join(f"{n} {state}" for state, n in run.summary.counts.items() if n)


def _named(noun: str, value: str) -> str:
    from workbench.importers.foreign import UNTOLD

    return f"{noun} {UNTOLD}" if value == UNTOLD else value


def _notes(run: Run) -> list[str]:
    notes = (run.origin or {}).get("notes")
    return [str(note) for note in notes] if isinstance(notes, list) else []


def _document(found: Intake) -> dict[str, object]:
    return {
        "runs": [
            {"run_id": run.run_id, "trials": run.planned, "origin": dict(run.origin or {})}
            for run in found.runs
        ],
        "taken": [run.run_id for run in found.taken],
        "refused": [
            {"file": str(path), "what": error.what, "remedy": error.remedy}
            for path, error in found.refused.items()
        ],
        "left_out": {str(path): what for path, what in found.left_out.items()},
        "joined": {str(path): str(result) for path, result in found.joined.items()},
        "known": {str(path): run_id for path, run_id in found.known.items()},
        "copies": {str(path): str(first) for path, first in found.copies.items()},
    }


COMMANDS: dict[str, Callable[..., None]] = {"import": import_}
