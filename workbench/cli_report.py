"""Commands that hand results over, and take them back: report, export, reproduce."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli_options import EXIT_GATE, JsonOption, StoreOption
from workbench.cli_output import say, say_json, show_table
from workbench.errors import UsageError
from workbench.invocation import DEFAULT_STORE, command_line
from workbench.store import Run, Store

if TYPE_CHECKING:
    from workbench.reproduce import Change, Replan, Reproduction

EXPORTS = ("vllm", "llm-d", "csv", "parquet")


def report(  # noqa: PLR0913 - its options
    run_ids: Annotated[
        list[str] | None, typer.Argument(metavar="RUN...", help="One run or several; the newest.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write to.")] = None,
    bundle: Annotated[
        Path | None, typer.Option(help="Write one zip with the runs in it, for `reproduce`.")
    ] = None,
    formats: Annotated[
        str, typer.Option("--format", help="Of html,md,csv,parquet,llm-d.")
    ] = "html,md,csv,parquet,llm-d",
    sections: Annotated[
        str | None, typer.Option(help="Of front,problems,points,definitions,environment,...")
    ] = None,
    static: Annotated[bool, typer.Option(help="No script: a page below 500 kB.")] = False,
    store: StoreOption = DEFAULT_STORE,
    json: JsonOption = False,
) -> None:
    """Write a report: HTML without network, Markdown, tables, plans, environment, checksums."""
    from workbench.report import SECTIONS, write_bundle
    from workbench.report import report as write_report

    runs = _chosen(Store(store), run_ids or [])
    names, kept = _names(formats), _names(sections) if sections is not None else SECTIONS
    if bundle is not None:
        written = write_bundle(runs, bundle, names, static=static, sections=kept)
        paths = {"bundle": written}
    else:
        paths = write_report(runs, out, names, static=static, sections=kept)
    for path in paths.values():
        say(str(path))
    if json:
        say_json({name: str(path) for name, path in paths.items()})


def export(
    run_id: Annotated[str | None, typer.Argument(help="The run; the newest.")] = None,
    to: Annotated[str, typer.Option(help=f"One of {', '.join(EXPORTS)}.")] = "llm-d",
    out: Annotated[Path | None, typer.Option(help="Folder to write to.")] = None,
    store: StoreOption = DEFAULT_STORE,
    json: JsonOption = False,
) -> None:
    """Write a run in the form of another tool: a file a trial, or one table."""
    from workbench.files import explained, write_file

    (run,) = _chosen(Store(store), [run_id] if run_id is not None else [])
    files = _exported(run, to)
    folder = out if out is not None else run.folder / "export" / to
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_file(folder / name, content)
        say(str(folder / name))
    left = len(run.documents()) - len(files)
    if to in ("vllm", "llm-d") and left:
        which = "not valid" if to == "llm-d" else "not measured"
        say(f"{left} trials were left out: {which}, which the form has no word for")
    if json:
        say_json({name: str(folder / name) for name in files})


def _exported(run: Run, to: str) -> dict[str, bytes]:
    from workbench.exports.llm_d import llm_d_files
    from workbench.exports.tables import points_csv, requests_parquet
    from workbench.exports.vllm_json import vllm_files

    makers: dict[str, Callable[[], dict[str, bytes]]] = {
        "vllm": lambda: vllm_files(run),
        "llm-d": lambda: llm_d_files(run),
        "csv": lambda: {"points.csv": points_csv([run])},
        "parquet": lambda: {"requests.parquet": requests_parquet([run])},
    }
    if run.origin is not None and to in ("vllm", "llm-d"):
        raise UsageError(
            "was imported, and its requests are not known.",
            where=run.run_id,
            remedy="The file that it was imported from says more; `--to csv` writes its points.",
        )
    if to not in makers:
        raise UsageError(
            f"there is no form {to!r}.", where="--to", remedy=f"Choose among {', '.join(EXPORTS)}."
        )
    return makers[to]()


def reproduce(  # noqa: PLR0913 - its options
    bundle: Annotated[Path, typer.Argument(help="A zip that `workbench report --bundle` wrote.")],
    run: Annotated[bool, typer.Option("--run", help="Measure again and compare.")] = False,
    run_id: Annotated[
        str | None, typer.Option("--of", help="Which run of the bundle, if it holds several.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Where the checkpoint lies on this machine.")
    ] = None,
    tolerance: Annotated[str, typer.Option(help="By how much a number may differ.")] = "10%",
    store: StoreOption = DEFAULT_STORE,
    json: JsonOption = False,
) -> None:
    """Plan a bundle again here: the same trials, or what differs. --run measures them, too."""
    from workbench.bundle import opened
    from workbench.cli_compare import share_of
    from workbench.reproduce import replan

    allowed = share_of(tolerance, "--tolerance")
    if not 0 < allowed < 1:
        raise UsageError(f"{tolerance} is no tolerance.", where="--tolerance", remedy="Use 10%.")
    with opened(bundle) as bundled:
        chosen = _bundled(bundled, run_id, bundle)
        found = replan(chosen, Store(store), model=model)
        _show_replan(found)
        document: dict[str, object] = {"replan": _replan_document(found)}
        if not run:
            again = [str(bundle), *(["--of", chosen.run_id] if run_id is not None else []), "--run"]
            say(f"measure it with `{command_line('reproduce', *again, store=store)}`")
        told = _measured_again(chosen, found, Store(store), allowed) if run else None
    if told is not None:
        document["reproduction"] = _reproduction_document(told)
    if json:
        say_json(document)
    if told is not None and told.failed:
        raise typer.Exit(EXIT_GATE)


def _measured_again(chosen: Run, found: Replan, store: Store, allowed: float) -> Reproduction:
    from workbench.cli_run import measure_job
    from workbench.reproduce import reproduction
    from workbench.runs import begin

    job = begin(found.outlook, store)
    measure_job(job, json=False)
    told = reproduction(chosen, job.writer.run.refresh(), tolerance=allowed)
    _show_reproduction(told)
    return told


def _bundled(store: Store, run_id: str | None, bundle: Path) -> Run:
    ids = store.run_ids()
    if run_id is not None or len(ids) == 1:
        return store.run(run_id or ids[0])
    raise UsageError(
        f"holds several runs: {', '.join(ids)}.", where=str(bundle), remedy="Name one with --of."
    )


def _show_replan(found: Replan) -> None:
    how = "plans identically" if found.identical else "does not plan identically"
    style = None if found.identical else "yellow"
    equal = f"{found.same} of {len(found.outlook.trials)} trial ids are equal"
    say(f"{found.run_id}: {how} here, {equal}", style=style)
    for cause in found.causes:
        say(f"  {cause.name}: {cause.bundled} in the bundle, {cause.here} here")
    if found.environment:
        rows = [(change.name, change.bundled, change.here) for change in found.environment]
        show_table("the environment differs in", ("fact", "bundle", "here"), rows)
    else:
        say("the environment differs in nothing that is known")


def _show_reproduction(found: Reproduction) -> None:
    for row in found.rows:
        say(row.sentence)
    if found.asked_outputs:
        say(f"{found.equal_outputs} of {found.asked_outputs} greedy outputs are equal")
    accepted = [one.name for one in found.comparison.differences if one.accepted]
    if accepted:
        say(f"compared although it differs: {', '.join(accepted)}", style="yellow")


def _replan_document(found: Replan) -> dict[str, object]:
    return {
        "run_id": found.run_id,
        "identical": found.identical,
        "same": found.same,
        "only_in_bundle": found.bundled,
        "only_here": found.here,
        "causes": [_change_document(change) for change in found.causes],
        "environment": [_change_document(change) for change in found.environment],
    }


def _change_document(change: Change) -> dict[str, object]:
    return dataclasses.asdict(change)


def _reproduction_document(found: Reproduction) -> dict[str, object]:
    return {
        "run": found.comparison.b.run.run_id,
        "metrics": [dataclasses.asdict(row) for row in found.rows],
        "equal_outputs": found.equal_outputs,
        "asked_outputs": found.asked_outputs,
    }


def _chosen(store: Store, run_ids: list[str]) -> list[Run]:
    """The runs named, or the newest one."""
    from workbench.cli_show import chosen

    return [store.run(name) for name in run_ids] or [chosen(store, None)]


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


COMMANDS: dict[str, Callable[..., None]] = {
    "report": report,
    "export": export,
    "reproduce": reproduce,
}
