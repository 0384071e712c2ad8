"""How the command line speaks: tables for people, one JSON line for programs, one red error."""

from __future__ import annotations

import io
import json
import sys
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape as without_markup
from rich.table import Table

from kernels.errors import WorkbenchError
from workbench.files import finite

if TYPE_CHECKING:
    import pandas as pd

ROOM = 120  # columns from which intervals are shown
WIDE = 160
out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def never_stop_at_a_character() -> None:
    """Print `?` for what the terminal's encoding lacks, in place of ending with an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def escape(text: str) -> str:
    """`text` for rich: no mark-up acts, and no control character reaches the terminal."""
    return without_markup("".join(f"\\x{ord(c):02x}" if _acts(c) else c for c in text))


def _acts(character: str) -> bool:
    return unicodedata.category(character) == "Cc" and character not in "\n\t"


def say(text: str, *, style: str | None = None) -> None:
    """One line for a person; `text` is shown as it is, mark-up included."""
    out.print(escape(text), style=style, soft_wrap=True)


def say_json(document: object) -> None:
    """One line of JSON, the last one of a command under --json; no NaN."""
    out.out(json.dumps(finite(document), ensure_ascii=True, allow_nan=False, default=str))


def say_error(error: WorkbenchError, *, advise: bool = True) -> None:
    """What, where and (`advise`) what to do, in red on stderr; no traceback."""
    where = f"{escape(error.where)}: " if error.where else ""
    err.print(f"[bold red]error[/] [red]{where}{escape(error.what)}[/]", soft_wrap=True)
    if error.remedy and advise:
        err.print(f"  {escape(error.remedy)}", soft_wrap=True)


def has_room(wide: bool = False) -> bool:
    """Whether a table may carry intervals: asked for, or the terminal is wide."""
    return wide or out.width >= ROOM


def show_table(
    title: str,
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    whole: Sequence[str] = (),
    wide: bool = False,
) -> None:
    """A table as wide as the terminal, or wider if `wide`; cells of `whole` are never broken."""
    table = Table(
        title=escape(title), title_justify="left", header_style="bold", box=SIMPLE_HEAD,
        padding=(0, 1), pad_edge=False, collapse_padding=True,
    )  # fmt: skip
    for header in headers:
        table.add_column(escape(header), overflow="fold", no_wrap=header in whole)
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell in row))
    out.print(table, width=max(out.width, WIDE) if wide else None, crop=not wide)


def say_labels(points: pd.DataFrame) -> None:
    """What must be said beside these numbers: `indicative` and the like."""
    said = dict.fromkeys(label for labels in points["labels"] for label in labels)
    for label in said:
        say(f"note: {label}", style="yellow")
