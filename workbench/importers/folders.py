"""Which files of a folder may be results: by their first bytes, as names tell nothing."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from workbench.errors import ForeignFileError, UsageError
from workbench.importers.document import LISTED, Form, form_of, refused, text_of_head

MOST_FILES = 10_000
MOST_TEXT_BYTES = 1 << 26  # of a file that is no JSON: logs have commas and colons, too
HEAD_BYTES = 4096
JSON_NAME = re.compile(r"\.(json|jsonl|ndjson)(\.gz)?$", re.IGNORECASE)


def files_of(folder: Path) -> list[Path]:
    """Every file below, by path; what is hidden, a link to a folder or no plain file is not one.

    ForeignFileError for a folder that cannot be read, UsageError for more than MOST_FILES.
    """
    found: list[Path] = []
    for place, folders, names in os.walk(folder, onerror=_unreadable):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [Path(place) / name for name in sorted(names) if not name.startswith(".")]
        if len(found) > MOST_FILES:
            raise UsageError(
                f"holds more than {MOST_FILES:,} files.",
                where=str(folder),
                remedy="Name a folder further down, or the files.",
            )
    return [path for path in found if _is_plain(path)]


def run_folders(files: Iterable[Path]) -> list[Path]:
    """The folders among those of the files that hold a run of this workbench."""
    return [path.parent for path in files if path.name == "run.json" and _is_of_ours(path)]


def _is_of_ours(path: Path) -> bool:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and {"format_version", "run_id", "plan"} <= found.keys()


def _unreadable(error: OSError) -> None:
    raise refused(Path(error.filename), f"cannot be read ({error.strerror}).") from error


def _is_plain(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:  # such as a link to nothing
        return False


def may_be_result(path: Path) -> bool:
    """Whether the file begins as a form that is read, or is called JSON, which it then should be.

    ForeignFileError where it cannot be told, or where a file that is called JSON begins as no form.
    """
    try:
        with path.open("rb") as file:
            text = text_of_head(file.read(HEAD_BYTES))
            size_bytes = file.seek(0, os.SEEK_END)
    except OSError as error:
        raise refused(path, f"cannot be read ({error.strerror}).") from error
    form = None if text is None else form_of(text)
    if form is None and JSON_NAME.search(path.name):
        raise _no_json(path, text)
    return form is Form.JSON or (form is not None and size_bytes <= MOST_TEXT_BYTES)


def _no_json(path: Path, text: str | None) -> ForeignFileError:
    if text is not None and not text.strip():
        return refused(path, "is empty.", "The tool may have been stopped before it wrote.")
    begun = "bytes that are no text" if text is None else repr(text.lstrip()[:30])
    what = f"is called JSON and begins with {begun}."
    return refused(path, what, f"Copy it again if it was a result; {LISTED}")
