"""What `npu-smi info` prints, as chips. Drivers differ in columns: only header words are keys."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping

from experiments.ascend import Chip
from experiments.errors import TelemetryError

INTERVAL_S = 2.0
"""The tool starts a process and asks every chip: about a second of a core each time."""
TIMEOUT_S = 20.0
SHOWN = 200
BUS_ID = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]")

REFUSALS = {
    "-8005": ("may not reach the devices", "Give the container /dev/davinci* and the driver."),
    "-8020": ("finds the device taken by another container", "Stop that container first."),
}
"""Codes that the tool prints instead of a table."""


def npu_smi() -> list[Chip]:
    """The chips of this host, now. TelemetryError without the tool, or for what is no table."""
    try:
        done = subprocess.run(
            ["npu-smi", "info"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TelemetryError(f"does not answer ({error})", where="npu-smi") from error
    return parse(done.stdout + done.stderr)


def parse(text: str) -> list[Chip]:
    """The chips of a table; a row that is cut short is left out.

    TelemetryError for a text without the two header lines, with its beginning.
    """
    for code, (what, remedy) in REFUSALS.items():
        if f"ret is {code}" in text:
            raise TelemetryError(f"{what} ({code})", where="npu-smi", remedy=remedy)
    rows = [cells for line in text.splitlines() if (cells := _cells(line))]
    upper = next((row for row in rows if row[0].startswith("NPU Name")), None)
    lower = next((row for row in rows if row[0].startswith("Chip") and "Bus-Id" in row[1:]), None)
    if upper is None or lower is None:
        raise TelemetryError(f"prints no table of chips: {text[:SHOWN]!r}", where="npu-smi")
    return [_chip(first, second) for first, second in _pairs(rows, upper, lower)]


def _cells(line: str) -> list[str]:
    """The cells of a table line, `a / b` drawn together; none for a rule or a line cut short."""
    text = line.strip()
    if not (text.startswith("|") and text.endswith("|") and len(text) > 1):
        return []
    return [re.sub(r"\s*/\s*", "/", " ".join(cell.split())) for cell in text[1:-1].split("|")]


Fields = Mapping[str, str]


def _pairs(
    rows: list[list[str]], upper: list[str], lower: list[str]
) -> Iterator[tuple[Fields, Fields]]:
    """The two lines of each chip as fields by header word; ends where another table begins.

    Only a second line has a bus id: a chip whose first or second line is cut is left out.
    """
    first: Fields = {}
    for row in rows[rows.index(lower) + 1 :]:
        if row[0].startswith("NPU"):
            return
        if not any(BUS_ID.fullmatch(cell) for cell in row):
            first = _fields(upper, row)
            continue
        second = _fields(lower, row)
        if first and second:
            yield first, second
        first = {}


def _fields(header: list[str], row: list[str]) -> Fields:
    """Header word -> value; empty when the row has other cells than the header."""
    found: dict[str, str] = {}
    if len(header) != len(row):
        return found
    for heads, values in zip(header, row, strict=True):
        words, parts = heads.split(), values.split()
        if len(words) != len(parts):
            return {}
        found |= dict(zip(words, parts, strict=True))
    return found


def _chip(first: Fields, second: Fields) -> Chip:
    used, total = _memory(second)
    card, chip = _whole(first.get("NPU")), _whole(second.get("Chip"))
    if card is None or chip is None:
        raise TelemetryError(f"numbers a chip {first} {second}", where="npu-smi")
    return Chip(
        card=card,
        chip=chip,
        name=first.get("Name"),
        health=first.get("Health"),
        bus_id=second.get("Bus-Id"),
        physical_id=_whole(second.get("Phy-ID", second.get("Device"))),
        power_w=_number(first.get("Power(W)")),
        temperature_c=_number(first.get("Temp(C)")),
        aicore_percent=_number(second.get("AICore(%)")),
        memory_used_mb=used,
        memory_total_mb=total,
    )


def _memory(fields: Fields) -> tuple[int | None, int | None]:
    """Used and total megabytes: of HBM, or of DDR on a chip that has no HBM."""
    for name in ("HBM-Usage(MB)", "Memory-Usage(MB)"):
        used, _, total = fields.get(name, "").partition("/")
        if _whole(total):
            return _whole(used), _whole(total)
    return None, None


def _number(text: str | None) -> float | None:
    """None for `-`, `NA` and whatever else is no number."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _whole(text: str | None) -> int | None:
    value = _number(text)
    return None if value is None else int(value)
