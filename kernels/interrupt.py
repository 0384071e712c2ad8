"""An interrupt while a program imports what it needs: nothing has begun, so it ends in silence.

This module imports next to nothing, so that there is no moment before it worth a traceback.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_INTERRUPTED = 130  # 128 and the signal, as shells count


@contextmanager
def quiet_imports(module: str) -> Iterator[None]:
    """Around the imports of a module called so: of the program, `__main__`, alone it does anything.

    An interrupt that the caller ignores, or answers, stays so.
    """
    usual = signal.getsignal(signal.SIGINT)
    if module != "__main__" or usual is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


def _leave(_signal: int, _frame: FrameType | None) -> None:
    """End at once: an exception inside an import is often answered by what imports."""
    os._exit(EXIT_INTERRUPTED)
