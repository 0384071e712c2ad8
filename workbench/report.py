"""A run as files to hand over: HTML that needs no network, Markdown, CSV, plan and checksums.

The same run gives the same bytes: no clock, no random id, sorted keys.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.errors import UsageError
from workbench.files import explained, to_json, write_file
from workbench.report_content import Content, gather
from workbench.report_tables import Table

if TYPE_CHECKING:
    from jinja2 import Environment

    from workbench.store import Run

FORMATS = ("html", "md", "csv")
TEMPLATES = Path(__file__).parent / "templates"
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest that zip archives know
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def report(
    run: Run, path: str | Path | None = None, formats: Sequence[str] = FORMATS
) -> dict[str, Path]:
    """Write the report of `run` into folder `path` (default: `report` in the run's folder).

    Writes report.html, report.md and points.csv as `formats` asks, and always plan.lock.yaml,
    environment.json and SHA256SUMS; returns file name -> path. UsageError for an unknown
    format; DiskFullError without room.
    """
    unknown = [name for name in formats if name not in FORMATS]
    if unknown:
        raise UsageError(
            f"there is no report format {unknown[0]!r}.",
            where="--format",
            remedy=f"Choose among {', '.join(FORMATS)}.",
        )
    folder = run.folder / "report" if path is None else Path(path)
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
    contents = report_files(run, formats)
    for name, content in contents.items():
        write_file(folder / name, content)
    return {name: folder / name for name in contents}


def report_files(run: Run, formats: Sequence[str] = FORMATS) -> dict[str, bytes]:
    """File name -> bytes of the report; SHA256SUMS comes last and covers the others."""
    content = gather(run)
    makers: Mapping[str, tuple[str, Callable[[], str]]] = {
        "html": ("report.html", lambda: render_html(content)),
        "md": ("report.md", lambda: render_markdown(content)),
        "csv": ("points.csv", lambda: points_csv(run)),
    }
    texts = {makers[name][0]: makers[name][1]() for name in FORMATS if name in formats}
    texts["plan.lock.yaml"] = content.plan_yaml
    texts["environment.json"] = to_json(run.environment)
    files = {name: text.encode("utf-8", "replace") for name, text in texts.items()}
    sums = [f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files)]
    return {**files, "SHA256SUMS": "".join(sums).encode()}


def bundle(files: Mapping[str, bytes]) -> bytes:
    """The files as one zip archive; the same files give the same bytes."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name, date_time=EPOCH), files[name])
    return sink.getvalue()


def render_html(content: Content) -> str:
    """One page with everything in it; plotly's script is inlined once where there is a figure."""
    return _environment(escape=True).get_template("report.html.j2").render(content=content)


def render_markdown(content: Content) -> str:
    """The same page as Markdown; every text from results is escaped."""
    return _environment(escape=False).get_template("report.md.j2").render(content=content)


def points_csv(run: Run) -> str:
    """All points as CSV; a text that a spreadsheet would run as a formula gets an apostrophe."""
    points = run.trials()
    for name in points.columns:
        points[name] = points[name].map(_csv_cell)
    return points.to_csv(index=False, lineterminator="\n")


def _csv_cell(value: object) -> object:
    if isinstance(value, list | dict):
        return to_json(value, indent=None).strip()
    if isinstance(value, str) and value.startswith(FORMULA_STARTS):
        return "'" + value
    return value


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
