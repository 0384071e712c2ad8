"""Runs as files to hand over: HTML that needs no network, Markdown, tables, plans, checksums.

The same runs give the same bytes: no clock, no random id, sorted keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.bundle import SUMS, bundle, checksums, with_runs
from workbench.errors import UsageError
from workbench.exports.llm_d import llm_d_files
from workbench.exports.tables import points_csv, requests_parquet
from workbench.files import explained, to_json, write_file
from workbench.report_tables import SECTIONS, Table
from workbench.stored_run import Run

if TYPE_CHECKING:
    from jinja2 import Environment

    from workbench.report_content import Content

__all__ = [
    "DATA", "FORMATS", "SECTIONS", "bundle", "report", "report_files", "write_bundle",
]  # fmt: skip

FORMATS = ("html", "md", "csv")
"""What a person reads."""
DATA = ("parquet", "llm-d")
"""What other tools read."""
TEMPLATES = Path(__file__).parent / "templates"
Runs = Run | Sequence[Run]


def report(
    runs: Runs,
    path: str | Path | None = None,
    formats: Sequence[str] = (*FORMATS, *DATA),
    *,
    static: bool = False,
    sections: Sequence[str] = SECTIONS,
) -> dict[str, Path]:
    """Write the report into folder `path` (default: `report` in the first run's folder).

    Writes report.html, report.md, points.csv, requests.parquet and llm-d/<trial>.yaml as `formats`
    asks, and always the locked plans, the environments and SHA256SUMS; returns file name -> path.
    `static`: no script, below 500 kB. UsageError for an unknown format or section; DiskFullError
    without room.
    """
    contents = report_files(runs, formats, static=static, sections=sections)
    folder = _listed(runs)[0].folder / "report" if path is None else Path(path)
    for name, content in contents.items():
        place = folder / name
        with explained(folder):
            place.parent.mkdir(parents=True, exist_ok=True)
        write_file(place, content)
    return {name: folder / name for name in contents}


def write_bundle(
    runs: Runs,
    path: Path,
    formats: Sequence[str] = (*FORMATS, *DATA),
    *,
    static: bool = False,
    sections: Sequence[str] = SECTIONS,
) -> Path:
    """Write the report and the runs themselves as one archive, which `reproduce` reads."""
    files = report_files(runs, formats, static=static, sections=sections)
    with explained(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, bundle(with_runs(files, _listed(runs))))
    return path


def report_files(
    runs: Runs,
    formats: Sequence[str] = FORMATS,
    *,
    static: bool = False,
    sections: Sequence[str] = SECTIONS,
) -> dict[str, bytes]:
    """File name -> bytes of the report; SHA256SUMS comes last and covers the others."""
    from workbench.report_content import gather

    _refuse_unknown(formats, (*FORMATS, *DATA), "--format", "report format")
    _refuse_unknown(sections, SECTIONS, "--sections", "section")
    listed = _listed(runs)
    content = gather(listed, sections=sections, static=static)
    makers: Mapping[str, tuple[str, Callable[[], bytes]]] = {
        "html": ("report.html", lambda: _bytes(render_html(content))),
        "md": ("report.md", lambda: _bytes(render_markdown(content))),
        "csv": ("points.csv", lambda: points_csv(listed)),
        "parquet": ("requests.parquet", lambda: requests_parquet(listed)),
    }
    files = {name: make() for form, (name, make) in makers.items() if form in formats}
    if "llm-d" in formats:
        files |= {f"llm-d/{n}": found for run in listed for n, found in llm_d_files(run).items()}
    files |= {name: _bytes(text) for name, text in content.plans}
    for run in listed:
        name = "environment.json" if len(listed) == 1 else f"{run.run_id}.environment.json"
        files[name] = _bytes(to_json(run.environment))
    return {**files, SUMS: checksums(files)}


def render_html(content: Content) -> str:
    """One page with everything in it; plotly's script is inlined once where there is a figure."""
    return _environment(escape=True).get_template("report.html.j2").render(content=content)


def render_markdown(content: Content) -> str:
    """The same page as Markdown; every text from results is escaped."""
    return _environment(escape=False).get_template("report.md.j2").render(content=content)


def _listed(runs: Runs) -> list[Run]:
    listed = [runs] if isinstance(runs, Run) else list(runs)
    if not listed:
        raise UsageError("a report needs at least one run.")
    ids = [run.run_id for run in listed]
    if len(set(ids)) < len(ids):
        twice = next(name for name in ids if ids.count(name) > 1)
        raise UsageError(f"{twice} is given twice.", where="the runs of a report")
    return listed


def _refuse_unknown(names: Sequence[str], known: Sequence[str], where: str, what: str) -> None:
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(
            f"there is no {what} {unknown[0]!r}.",
            where=where,
            remedy=f"Choose among {', '.join(known)}.",
        )


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def markdown_text(value: object) -> object:
    """A text that Markdown shows as it is: no mark-up, no table cell breaks, one line."""
    if not isinstance(value, str) or hasattr(value, "__html__"):  # Markup is finished text
        return value
    text = " ".join(value.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for mark in "\\`*_{}[]#|$~":
        text = text.replace(mark, f"\\{mark}")
    return text


def _markdown_table(table: Table) -> str:
    from markupsafe import Markup

    lines = [table.headers, ("---",) * len(table.headers)]
    lines += [tuple(str(markdown_text(cell)) for cell in row) for row in table.rows]
    text = Markup("\n").join(Markup(f"| {' | '.join(line)} |") for line in lines)
    return text + Markup(f"\n\n{markdown_text(table.note)}") if table.note else text


def _environment(*, escape: bool) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=escape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=None if escape else markdown_text,
    )
    if not escape:
        environment.globals["table"] = _markdown_table
    return environment
