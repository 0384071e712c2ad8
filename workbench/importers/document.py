"""A file of another tool, read once: what form it has, and what stands in it.

The form is found by content, never by the name: JSON, JSON lines, YAML or CSV, in UTF-8 or with
the mark of UTF-8 or UTF-16, plain or packed by gzip.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import hashlib
import io
import json
import re
import zlib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import yaml

from workbench.errors import ForeignFileError, UnknownFileError

MOST_BYTES = 1 << 29  # of the text; larger files are refused before they fill the memory
MOST_YAML_CHARACTERS = 1 << 26  # of which a reader makes objects of more than a hundred times that
GZIP = b"\x1f\x8b"
MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
LISTED = "`workbench import --formats` lists what can be imported."
YAML_START = re.compile(r"""(---|[A-Za-z_'"][\w .'"-]*:(\s|$))""")
YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Form(StrEnum):
    """How the content of a file is written."""

    JSON = "JSON"
    LINES = "JSON lines"
    YAML = "YAML"
    CSV = "CSV"


@dataclass(frozen=True, kw_only=True)
class Document:
    """One file. `value` is untrusted: JSON as `json` reads it, NaN and Infinity included.

    LINES: the list of the objects; CSV: the list of the rows, each a list of texts.
    """

    path: Path
    sha256: str  # of the bytes as they lie on the disk
    size_bytes: int
    form: Form
    value: object


def read_document(path: Path) -> Document:
    """The content of `path`; ForeignFileError says why it is none of the forms."""
    content = _bytes(path)
    text = _text(path, content)
    form, value = _parsed(path, text)
    return Document(
        path=path,
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        form=form,
        value=value,
    )


def refused(path: Path, what: str, remedy: str = "") -> ForeignFileError:
    """The error for a file that cannot be imported."""
    return ForeignFileError(what, where=str(path), remedy=remedy or None)


def unknown(path: Path, what: str, remedy: str = "") -> UnknownFileError:
    """The error for a file that is no result of a known tool."""
    return UnknownFileError(what, where=str(path), remedy=remedy or None)


def _bytes(path: Path) -> bytes:
    if path.is_dir():
        raise refused(path, "is a folder.", f"Name the files in it, such as {path}/*.json.")
    try:
        with path.open("rb") as file:  # which may be a pipe or a device without an end
            found = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        remedy = "Check the name and its permissions."
        raise refused(path, f"cannot be read ({why}).", remedy) from error
    if len(found) > MOST_BYTES:
        raise _too_large(path)
    return found


def text_of_head(content: bytes) -> str | None:
    """What the first bytes of a file say, packed or not; None where they are no text."""
    if content.startswith(GZIP):
        try:
            content = zlib.decompressobj(wbits=31).decompress(content, len(content))
        except zlib.error:
            return None
    encoding = next((name for mark, name in MARKS if content.startswith(mark)), "utf-8")
    try:
        return codecs.getincrementaldecoder(encoding)().decode(content)
    except UnicodeDecodeError:
        return None


def _too_large(path: Path) -> ForeignFileError:
    what = f"holds more than {MOST_BYTES >> 20:,} MiB."
    return refused(path, what, "Import the tool's summary in place of its raw records.")


def _text(path: Path, content: bytes) -> str:
    if content.startswith(GZIP):
        content = _unpacked(path, content)
    encoding = next((name for mark, name in MARKS if content.startswith(mark)), "utf-8")
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        what = f"is no text in {encoding} (byte {error.start:,} does not fit)."
        raise unknown(path, what, "Import the result file itself, or save it as UTF-8.") from error
    if not text.strip():
        raise unknown(path, "is empty.", "The tool may have been stopped before it wrote.")
    return text


def _unpacked(path: Path, content: bytes) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
            found = packed.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise refused(path, f"is a damaged gzip file ({error}).", "Copy it again.") from error
    if len(found) > MOST_BYTES:
        raise _too_large(path)
    return found


def _parsed(path: Path, text: str) -> tuple[Form, object]:
    form = form_of(text)
    if form is Form.JSON:
        return _json(path, text)
    if form is Form.YAML:
        return Form.YAML, _yaml(path, text)
    if form is Form.CSV:
        return Form.CSV, _csv(path, text)
    start = text.lstrip()
    raise unknown(
        path,
        "is no result of a known tool: neither JSON, JSON lines, YAML nor CSV "
        f"(it begins with {start[:30]!r}).",
        LISTED,
    )


def form_of(text: str) -> Form | None:
    """The form that a text begins in, JSON lines as JSON; None for none."""
    start = text.lstrip()
    first = start.partition("\n")[0]
    if start[:1] in ("{", "["):
        return Form.JSON
    if start.startswith("#"):  # a comment of YAML, or a heading of Markdown
        lines = (line for line in start.splitlines() if line.strip())
        below = next((line for line in lines if not line.startswith("#")), None)
        return Form.YAML if below is None or YAML_START.match(below) else None
    if YAML_START.match(first):
        return Form.YAML
    return Form.CSV if "," in first else None


def _json(path: Path, text: str) -> tuple[Form, object]:
    try:
        return Form.JSON, json.loads(text)
    except (ValueError, RecursionError) as error:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) < 2 or not _is_json(lines[0]):
            raise _damaged(path, str(error)) from error
    return Form.LINES, [_line(path, number, line) for number, line in enumerate(lines, 1)]


def _is_json(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _line(path: Path, number: int, line: str) -> object:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"line {number} that is not empty: {error}") from error
    if not isinstance(found, dict):
        raise _damaged(path, f"line {number} that is not empty is no object: {line[:40]!r}")
    return found


def _damaged(path: Path, why: str) -> ForeignFileError:
    what = f"is damaged JSON ({why})."
    return refused(path, what, "It may be cut short: copy it again, or drop its last line.")


def _yaml(path: Path, text: str) -> object:
    if len(text) > MOST_YAML_CHARACTERS:
        what = f"is YAML of more than {MOST_YAML_CHARACTERS >> 20:,} Mi characters."
        raise refused(path, what, "Have the tool write JSON, which is read in a fraction of it.")
    try:
        return yaml.load(text, YAML_LOADER)
    except (yaml.YAMLError, ValueError, RecursionError, TypeError, AttributeError) as error:
        told = " ".join(str(error).split())[:200]
        what = f"is no result of a known tool: damaged YAML ({told})."
        raise unknown(path, what, f"Copy it again if it is one; {LISTED}") from error


def _csv(path: Path, text: str) -> list[list[str]]:
    try:
        return list(csv.reader(io.StringIO(text, newline="")))
    except csv.Error as error:
        raise unknown(path, f"is damaged CSV ({error}).", "Copy it again.") from error
