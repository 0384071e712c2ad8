"""Request traces of real services: how long, when, and with which shared prefixes.

Three public forms. Azure: CSV with `TIMESTAMP,ContextTokens,GeneratedTokens`. BurstGPT: CSV with
`Timestamp` (s), `Request tokens` and `Response tokens` among six or eight columns; 0 response
tokens mark a request that failed, which is left out and counted. Mooncake: JSONL with `timestamp`
(ms), `input_length`, `output_length` and `hash_ids`, one id a block of 512 tokens, equal ids for
equal blocks; a later turn of a session (`session_id`) carries `delay` (ms after the turn before
ended) and no `timestamp`, and its `input_length` counts what is new in it. The text itself is in
none of them.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import cast

from experiments.border import brief
from experiments.errors import WorkloadError

BLOCK_TOKENS = 512
_IDS = 1 << 63
_MOST_MS = 1e15  # thirty thousand years
_DIGITS = re.compile(r"[0-9]+")
_ZERO = re.compile(r"0+(\.0*)?")
_WHOLE = re.compile(r"-?[0-9]{1,15}")
_AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_BURST = ("Timestamp", "Model", "Request tokens", "Response tokens", "Total tokens", "Log Type")
_BURST_LONG = ("Timestamp", "Session ID", "Elapsed time", *_BURST[1:])
FORMATS = (
    f"A trace is a CSV with exactly the columns {','.join(_AZURE)}, one with those of BurstGPT "
    f"({','.join(_BURST)}), or JSONL with input_length, output_length and timestamp (ms)."
)


@dataclass(frozen=True, kw_only=True)
class TraceRow:
    """One request of a trace, in tokens of the traced model and seconds since its first row."""

    prompt_tokens: int
    output_tokens: int
    arrival_s: float | None  # None: a later turn
    delay_s: float | None = None  # after the turn before ended
    session: str | None = None
    block_ids: tuple[int, ...] = ()  # empty: no prefix is shared


@dataclass(frozen=True, kw_only=True)
class Trace:
    """The requests of one file, in file order."""

    rows: tuple[TraceRow, ...]
    failed: int = 0  # rows of requests that failed when they were recorded: left out


def read_trace(path: Path) -> Trace:
    """The requests of an Azure, a BurstGPT or a Mooncake file.

    WorkloadError names the file, the line and what is wrong with it.
    """
    text = read_text(path)
    lines = text.split("\n")
    if not any(line.strip() for line in lines):
        raise WorkloadError("has no rows", where=str(path))
    is_json = lines[0].lstrip().startswith("{") or "," not in lines[0]
    found = list(_mooncake(path, lines) if is_json else _csv(path, lines))
    rows = tuple(row for row in found if row is not None)
    if not rows:
        what = "has a header and no rows" if not found else "has no row of a request that succeeded"
        raise WorkloadError(what, where=str(path))
    return Trace(rows=_from_zero(rows), failed=len(found) - len(rows))


def read_text(path: Path) -> str:
    """A workload file as text. WorkloadError if it is missing, no file of its own or not UTF-8.

    A device never ends, and a pipe is read once while a resume reads it again.
    """
    try:
        if path.exists() and not path.is_file():
            raise WorkloadError("is no regular file", where=str(path))
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise WorkloadError(
            "there is no such file",
            where=str(path),
            remedy="Paths are looked up from the plan's folder; `sample:NAME` names a shipped one.",
        ) from error
    except UnicodeDecodeError as error:
        raise WorkloadError(f"is not UTF-8: {error.reason}", where=str(path)) from error
    except OSError as error:
        raise WorkloadError(f"cannot be read: {error}", where=str(path)) from error


def json_rows(path: Path, lines: list[str]) -> Iterator[tuple[str, dict[str, object]]]:
    """(place, object) of every non-blank line of a JSONL file."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise WorkloadError(f"is not JSON: {error.msg}", where=place) from error
        except RecursionError as error:
            raise WorkloadError("is nested too deeply", where=place) from error
        except ValueError as error:
            raise WorkloadError("holds a number of too many digits", where=place) from error
        _refuse_surrogates(line, row, place)
        if not isinstance(row, dict):
            raise WorkloadError("is not a JSON object", where=place)
        yield place, row


def _refuse_surrogates(line: str, row: object, place: str) -> None:
    """JSON can escape half of a character, which no text in UTF-8 holds."""
    if "\\ud" not in line.lower():
        return
    try:
        json.dumps(row, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise WorkloadError("holds half of a character (a surrogate)", where=place) from error


def _csv(path: Path, lines: list[str]) -> Iterator[TraceRow | None]:
    header = _header(path, lines[0])
    if header in (_BURST, _BURST_LONG):
        return _burst(path, lines, header)
    if header == _AZURE:
        return _azure(path, lines)
    likely = _BURST if len(set(header) & set(_BURST)) > len(set(header) & set(_AZURE)) else _AZURE
    lacking = [name for name in likely if name not in header]
    what = f"lacks {', '.join(lacking)}" if lacking else "has other columns or another order"
    raise WorkloadError(
        f"{what}; has the columns {','.join(header)}", where=f"{path}:1", remedy=FORMATS
    )


def _header(path: Path, first: str) -> tuple[str, ...]:
    try:
        return tuple(cell.strip() for cell in next(csv.reader([first])))
    except csv.Error as error:
        raise WorkloadError(f"is no CSV: {error}", where=f"{path}:1", remedy=FORMATS) from error


def _cells(path: Path, lines: list[str], columns: int) -> Iterator[tuple[str, list[str]]]:
    """(place, cells) of every non-blank row behind the header."""
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != columns:
            raise WorkloadError(f"has {len(cells)} columns, not {columns}", where=place)
        yield place, cells


def _azure(path: Path, lines: list[str]) -> Iterator[TraceRow]:
    for place, cells in _cells(path, lines, len(_AZURE)):
        yield TraceRow(
            prompt_tokens=token_count(cells[1], _AZURE[1], place),
            output_tokens=token_count(cells[2], _AZURE[2], place),
            arrival_s=_instant(cells[0], place),
        )


def _burst(path: Path, lines: list[str], header: tuple[str, ...]) -> Iterator[TraceRow | None]:
    """None for a request that failed. Its sessions give no order of turns, so they are not read."""
    prompt, output = header.index("Request tokens"), header.index("Response tokens")
    for place, cells in _cells(path, lines, len(header)):
        if _ZERO.fullmatch(cells[output]):
            yield None
            continue
        yield TraceRow(
            prompt_tokens=token_count(cells[prompt], "Request tokens", place),
            output_tokens=token_count(cells[output], "Response tokens", place),
            arrival_s=_seconds(cells[0], place),
        )


def _seconds(cell: str, place: str) -> float:
    """BurstGPT counts them from its first day, whole or with decimals."""
    try:
        found = float(cell)
    except ValueError:
        found = math.nan
    if not 0 <= found <= _MOST_MS / 1000:
        what = f"Timestamp is {brief(cell)}, not a number of seconds"
        raise WorkloadError(what, where=place)
    return found


def _instant(cell: str, place: str) -> float:
    """Seconds on the trace's own scale. The files carry seven decimals; six are read."""
    what = f"TIMESTAMP is {brief(cell)}, not a date and time"
    whole, _, fraction = cell.strip().partition(".")
    try:
        base = datetime.fromisoformat(f"{whole}+00:00").timestamp()
    except (ValueError, OverflowError) as error:
        raise WorkloadError(what, where=place) from error
    if fraction and not _DIGITS.fullmatch(fraction):
        raise WorkloadError(what, where=place)
    return base + (float(f"0.{fraction}") if fraction else 0.0)


def _mooncake(path: Path, lines: list[str]) -> Iterator[TraceRow]:
    for place, row in json_rows(path, lines):
        prompt = token_count(row.get("input_length"), "input_length", place)
        yield TraceRow(
            prompt_tokens=prompt,
            output_tokens=token_count(row.get("output_length"), "output_length", place),
            arrival_s=_milliseconds(row, "timestamp", place),
            delay_s=_milliseconds(row, "delay", place),
            session=str(row["session_id"]) if row.get("session_id") is not None else None,
            block_ids=_blocks(row.get("hash_ids"), prompt, place),
        )


def _blocks(value: object, prompt_tokens: int, place: str) -> tuple[int, ...]:
    if value is None:
        return ()
    found = cast("list[object]", value) if isinstance(value, list) else [None]
    blocks = tuple(block for block in found if type(block) is int)
    if len(blocks) < len(found):
        raise WorkloadError("hash_ids is not a list of whole numbers", where=place)
    if not all(0 <= block < _IDS for block in blocks):
        raise WorkloadError("a hash_id is not from 0 to 2^63 - 1", where=place)
    if len(blocks) > -(-prompt_tokens // BLOCK_TOKENS):
        raise WorkloadError(
            f"has {len(blocks)} hash_ids for {prompt_tokens} tokens, more than one a block of "
            f"{BLOCK_TOKENS}",
            where=place,
        )
    return blocks


def _milliseconds(row: dict[str, object], field: str, place: str) -> float | None:
    value = row.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST_MS:
        what = f"{field} is {brief(value)}, not a number of milliseconds"
        raise WorkloadError(what, where=place)
    return value / 1000


def token_count(value: object, field: str, place: str) -> int:
    """A whole number of tokens, at least 1."""
    text = str(value).strip()
    if isinstance(value, bool) or not _WHOLE.fullmatch(text):
        raise WorkloadError(f"{field} is {brief(value)}, not a whole number", where=place)
    if int(text) < 1:
        raise WorkloadError(f"{field} is {text}; a request has at least one token", where=place)
    return int(text)


def _from_zero(rows: tuple[TraceRow, ...]) -> tuple[TraceRow, ...]:
    first = min((row.arrival_s for row in rows if row.arrival_s is not None), default=0.0)
    return tuple(
        row if row.arrival_s is None else replace(row, arrival_s=row.arrival_s - first)
        for row in rows
    )
