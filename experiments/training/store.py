"""A run's folder: its state between pieces, its log, and its master weights in small files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file, save_file

from experiments.training.trainer import State

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

_STATE = "state.pt"
_LOG = "log.jsonl"
_SHARD_BYTES = 15_000_000


def save_state(folder: Path, state: State) -> None:
    """Write the state under a temporary name and rename it, so that a kill leaves the last one."""
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f"{_STATE}.unfinished"
    torch.save(
        {"step": state.step, "masters": state.masters, "optimiser": state.optimiser}, unfinished
    )
    unfinished.replace(folder / _STATE)


def load_state(folder: Path, device: torch.device) -> State | None:
    """Read the newest state; None where there is none."""
    path = folder / _STATE
    if not path.exists():
        return None
    held = torch.load(path, map_location=device, weights_only=True)
    return State(step=held["step"], masters=held["masters"], optimiser=held["optimiser"])


def append_log(folder: Path, record: Mapping[str, object]) -> None:
    """Add one line to the loss curve."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOG).open("a", encoding="utf-8") as log:
        log.write(json.dumps(record) + "\n")


def truncate_log(folder: Path, step: int) -> None:
    """Drop lines after `step`: they were written after the state that is continued."""
    path = folder / _LOG
    if not path.exists():
        return
    lines = path.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if json.loads(line)["step"] <= step]
    path.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")


def save_masters(folder: Path, masters: Mapping[str, Tensor]) -> None:
    """Write the stacked float32 masters as safetensors of at most 15 MB (or one stack) each."""
    folder.mkdir(parents=True, exist_ok=True)
    shards: list[dict[str, Tensor]] = [{}]
    held = 0
    for key, tensor in masters.items():
        size = tensor.numel() * tensor.element_size()
        if shards[-1] and held + size > _SHARD_BYTES:
            shards.append({})
            held = 0
        shards[-1][key] = tensor.detach().cpu().contiguous()
        held += size
    for number, shard in enumerate(shards):
        save_file(shard, folder / f"masters-{number}.safetensors")


def load_masters(folder: Path) -> dict[str, Tensor]:
    """Read what `save_masters` wrote."""
    table: dict[str, Tensor] = {}
    for path in sorted(folder.glob("masters-*.safetensors")):
        table |= load_file(path)
    return table
