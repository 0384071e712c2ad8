"""Where the command `workbench` begins: an interrupt ends it quietly while Python still imports.

This module imports next to nothing, so that there is no moment before `main` worth a traceback.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

EXIT_INTERRUPTED = 130


def main() -> None:
    """Run the command; once it is loaded, an interrupt is its own to answer."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:  # else the caller ignores or answers it
        signal.signal(signal.SIGINT, _leave)
    from workbench.cli import main as command

    signal.signal(signal.SIGINT, usual)
    try:
        command()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def _leave(_signal: int, _frame: FrameType | None) -> None:
    """End at once: nothing has begun, and an exception inside an import is often answered."""
    os._exit(EXIT_INTERRUPTED)
