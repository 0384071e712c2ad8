"""One thing that the doctor found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "error"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """ok: as it should be; warning: works with a limit; error: does not work."""

    level: Level
    subject: str
    message: str
