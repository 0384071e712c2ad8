"""Where the command `workbench` begins: an interrupt ends it quietly while Python still imports."""

from __future__ import annotations

import sys

from kernels.interrupt import EXIT_INTERRUPTED, quiet_imports


def main() -> None:
    """Run the command; once it is loaded, an interrupt is its own to answer."""
    with quiet_imports("__main__"):
        from workbench.cli import main as command

    try:
        command()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
