"""Where checkpoints are found, and whether one is noise."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from engine.errors import CheckpointError

CONFIG_FILE = "config.json"
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


def read_config(model_dir: Path) -> dict[str, Any]:
    """`config.json` of a directory as it is. CheckpointError where there is no JSON object."""
    path = model_dir / CONFIG_FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(
            "there is no config.json",
            where=str(model_dir),
            remedy="Give a checkpoint directory, or make one with `workbench make-checkpoint`.",
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"cannot be read: {error}", where=str(path)) from error
    if not isinstance(document, dict):
        raise CheckpointError("is not a JSON object", where=str(path))
    return document


def fetched_folder() -> Path:
    """Where checkpoints lie that `workbench fetch-checkpoint` brought, each under its name."""
    return Path.home() / ".cache" / "inference-workbench" / "checkpoints"


def resolve_model_dir(name_or_path: str | Path) -> Path:
    """Return the directory meant: a path, or the name of one that is shipped or was fetched.

    CheckpointError where neither exists.
    """
    name = str(name_or_path)
    with suppress(OSError, RuntimeError):  # a name too long for a file, an unknown ~user
        path = Path(name_or_path).expanduser()
        if path.is_dir():
            return path
        for known in (_SHIPPED / name, fetched_folder() / name):
            if Path(name).name == name and (known / CONFIG_FILE).is_file():
                return known
    raise CheckpointError(
        "there is no such checkpoint directory.",
        where=name,
        remedy="Give an existing directory, make one with `workbench make-checkpoint toy`, or "
        "fetch a small language model with `workbench fetch-checkpoint smollm2`.",
    )
