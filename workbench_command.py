"""The entry point of the command `workbench`.

It lies beside the package because importing the package takes time: an interrupt meanwhile ends
the command without a traceback.
"""

import sys

INTERRUPTED = 130


def main() -> None:
    """Run the command; exit with 130 where it is interrupted while it loads."""
    try:
        from workbench.cli import main as command

        command()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        raise SystemExit(INTERRUPTED) from None


if __name__ == "__main__":
    main()
