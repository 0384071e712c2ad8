"""Commands for other engines on this host: peers install, list, convert."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiments.peers.recipes import PEERS, Recipe, default_folder
from kernels.near_names import nearest
from workbench.cli_options import JsonOption
from workbench.cli_output import say, say_json
from workbench.errors import UsageError

FolderOption = Annotated[
    Path | None,
    typer.Option(
        "--folder", help="Where peers lie; ~/.cache/inference-workbench/peers if left out."
    ),
]
HERE = "in this environment"

app = typer.Typer(no_args_is_help=True, help="Other engines, to be measured beside ours.")


@app.command("install")
def install(
    names: Annotated[list[str], typer.Argument(help=f"Any of {', '.join(PEERS)}.")],
    folder: FolderOption = None,
    json: JsonOption = False,
) -> None:
    """Make each peer's environment; goes on where an earlier call was cut short."""
    from workbench.peer_install import install as install_one
    from workbench.peer_install import installed

    recipes = [_recipe(name) for name in names]
    chosen = folder if folder is not None else default_folder()
    for recipe in recipes:
        if installed(recipe, chosen).complete:
            say(f"{recipe.name} is installed")
        else:
            say(f"{recipe.name}: takes about {recipe.minutes} minutes; log in "
                f"{recipe.home(chosen) / 'install.log'}")  # fmt: skip
        install_one(recipe, chosen, tell=lambda step: say(f"  {step}"))
    _show(recipes, chosen, json=json)


@app.command("list")
def list_peers(folder: FolderOption = None, json: JsonOption = False) -> None:
    """What there is, what is installed, and in which versions."""
    _show(list(PEERS.values()), folder if folder is not None else default_folder(), json=json)


@app.command("convert")
def convert(
    model: Annotated[str, typer.Argument(help="A model folder in Hugging Face form.")],
    folder: FolderOption = None,
) -> None:
    """Write the folder's weights as the GGUF file that llama.cpp loads, in bf16."""
    from workbench.peer_convert import convert as convert_one

    say(f"{convert_one(model, folder if folder is not None else default_folder())}")


def _recipe(name: str) -> Recipe:
    if name not in PEERS:
        raise UsageError(
            f"{name!r} is no peer.", where="peers install", remedy=nearest(name, PEERS)
        )
    return PEERS[name]


def _show(recipes: list[Recipe], folder: Path, *, json: bool) -> None:
    """Three lines a peer: name and state, what it takes, versions or how it is installed."""
    from workbench.peer_install import here, installed

    found = {recipe.name: installed(recipe, folder) for recipe in recipes}
    say(f"Peers in {folder}")
    for recipe in recipes:
        one, beside = found[recipe.name], here(recipe)
        states = ["installed"] * one.complete + [HERE] * bool(beside)
        versions = one.versions if one.complete else beside
        told = ", ".join(f"{name} {version}" for name, version in versions.items())
        say(f"{recipe.name}: {' and '.join(states) or 'not installed'}")
        say(f"  {recipe.title}; {recipe.disk_bytes / 1e9:.1f} GB, {recipe.minutes} minutes, "
            f"{recipe.licence}")  # fmt: skip
        say(f"  {told if states else f'install it with `{recipe.install_line}`'}")
    if json:
        say_json({
            name: {"installed": one.complete, "here": dict(here(PEERS[name])),
                   "versions": dict(one.versions), "program": str(PEERS[name].program(folder))}
            for name, one in found.items()
        })  # fmt: skip
