"""Where checkpoints are found, and whether one is noise."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from engine.errors import CheckpointError

NOTE_FILE = "checkpoint.json"  # `make_checkpoint` leaves it beside the weights

_SHIPPED = Path(__file__).parent / "checkpoints"


def is_random(model_dir: Path) -> bool:
    """Whether `make_checkpoint` wrote the weights, so that what they accept means nothing."""
    path = model_dir / NOTE_FILE
    if not path.exists():
        return False
    try:
        return json.loads(path.read_text(encoding="utf-8"))["kind"] == "random"
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"cannot be read as a checkpoint note: {error}.",
            where=str(path),
            remedy="Remove it, or make the checkpoint again.",
        ) from error


def resolve_model_dir(name_or_path: str | Path) -> Path:
    """Return the checkpoint directory meant: a path, or the name of one that is shipped.

    CheckpointError where neither exists.
    """
    name = str(name_or_path)
    with suppress(OSError, RuntimeError):  # a name too long for a file, an unknown ~user
        path = Path(name_or_path).expanduser()
        if path.is_dir():
            return path
        shipped = _SHIPPED / name
        if Path(name).name == name and (shipped / "config.json").is_file():
            return shipped
    raise CheckpointError(
        "there is no such checkpoint directory.",
        where=name,
        remedy="Give an existing directory, or make one with `workbench make-checkpoint toy`.",
    )
