"""Command lines to paste: the program as it was invoked, every word quoted, the store named."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

DEFAULT_STORE = Path("results")
_NAME = "workbench"


def command_line(*words: str | Path, store: Path | None = None) -> str:
    """`workbench WORDS --store STORE` for a shell in the current folder.

    `store` None, or the default one, is left out.
    """
    said = [*program(), *map(str, words)]
    if store is not None and store != DEFAULT_STORE:
        said += ["--store", str(store)]
    return shlex.join(said)


def program(invoked: str | None = None) -> list[str]:
    """How this process was started, as words; from a notebook, the script of its environment."""
    path = Path(sys.argv[0] if invoked is None else invoked)
    if path.name == "__main__.py" and path.parent.name == _NAME:
        return [sys.executable, "-m", _NAME]
    if path.name != _NAME:
        path = Path(sys.executable).with_name(_NAME)
    found = shutil.which(_NAME)
    on_path = found is not None and Path(found).absolute() == path.absolute()
    return [_NAME] if on_path or not path.exists() else [str(path)]
