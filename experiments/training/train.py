"""Train a checkpoint: `python -m experiments.training.train --config nano --data .train/pack`.

Runs until the recipe is done or `--time-limit` seconds are over, leaves its state in `--state`,
and continues from there with `--resume`. On a CPU the continuation is bit for bit what one
run gives; on a GPU sums of gradients come in no fixed order.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import torch
import typer
from rich.console import Console

from engine.tokenizer import Tokenizer, number_keys
from experiments.errors import PlanError
from experiments.training import packing, recipe, sizes, store
from experiments.training.trainer import Run, Trainer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LOG_EVERY = 20
_CLOCK = time.perf_counter


@dataclass(frozen=True, kw_only=True)
class Limits:
    """When a piece of the run ends."""

    seconds: float | None
    clock: Callable[[], float]


def facts(manifest: Mapping[str, object]) -> sizes.TokenFacts:
    """What the manifest of a pack says of its tokenizer."""
    return sizes.TokenFacts(
        vocab_size=int(str(manifest["vocab_size"])),
        compressed_vocab_size=int(str(manifest["compressed_vocab_size"])),
        noise_token_id=int(str(manifest["noise_token_id"])),
    )


def prepare(plan: recipe.Recipe, pack: packing.Pack, device: torch.device) -> Run:
    """Join a recipe and a pack."""
    tokens = facts(pack.manifest)
    tokenizer = Tokenizer.load(pack.tokenizer_file.parent)
    return Run(
        recipe=plan,
        config=sizes.model_config(plan.sizes, tokens),
        token_map=number_keys(tokenizer.engram_keys(tokens.vocab_size)),
        training=pack.training,
        device=device,
        compiled=device.type != "cpu",
    )


def go(trainer: Trainer, folder: Path, limits: Limits) -> bool:
    """Advance until the recipe or the time is over; True when the recipe is done.

    Saves the state at the end, and appends to the log every 20 steps.
    """
    start = limits.clock()
    while trainer.step < trainer.steps:
        measures = trainer.advance()
        if trainer.step % _LOG_EVERY == 0 or trainer.step == trainer.steps:
            elapsed_s = limits.clock() - start
            values = {key: _plain(tensor) for key, tensor in measures.items()}
            store.append_log(
                folder, {"step": trainer.step, "piece_s": round(elapsed_s, 2), **values}
            )
        if limits.seconds is not None and limits.clock() - start > limits.seconds:
            break
    store.save_state(folder, trainer.state())
    return trainer.step >= trainer.steps


def _plain(tensor: torch.Tensor) -> object:
    values = np.round(tensor.float().cpu().numpy().astype(np.float64), 5)
    return values.tolist()


def resume(trainer: Trainer, folder: Path) -> None:
    """Continue from the folder's state. PlanError where there is none."""
    state = store.load_state(folder, trainer.run.device)
    if state is None:
        raise PlanError(
            "there is no state to resume", where=str(folder), remedy="Start without --resume."
        )
    trainer.restore(state)
    store.truncate_log(folder, state.step)


def _main(  # noqa: PLR0913  one option each
    config: Annotated[str, typer.Option(help="Recipe.")] = "nano",
    data: Annotated[Path, typer.Option(help="Unpacked corpus.")] = Path(".train/pack"),
    state: Annotated[Path, typer.Option(help="Folder of the run.")] = Path(".train/state"),
    masters: Annotated[Path | None, typer.Option(help="Where master weights go.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    scale: Annotated[float, typer.Option(help="Times the steps of the recipe.")] = 1.0,
    time_limit: Annotated[float | None, typer.Option(help="Seconds of this piece.")] = None,
    continued: Annotated[bool, typer.Option("--resume", help="Continue the run.")] = False,
) -> None:
    begun = _CLOCK()
    torch.set_float32_matmul_precision("high")
    plan = recipe.find(config).scaled(scale)
    trainer = Trainer(prepare(plan, packing.load(data), torch.device(device)))
    if continued:
        resume(trainer, state)
    left = None if time_limit is None else time_limit - (_CLOCK() - begun)
    done = go(trainer, state, Limits(seconds=left, clock=_CLOCK))
    if masters is not None:
        store.save_masters(masters, trainer.masters)
    Console().print(
        f"step {trainer.step} of {trainer.steps}, {'done' if done else 'to be resumed'}, "
        f"{_CLOCK() - begun:.1f} s"
    )


if __name__ == "__main__":
    typer.run(_main)
