"""What a checkpoint directory says of itself, before any tensor is loaded."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.models.protocol import ModelFacts


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One checkpoint directory that is whole: its headers meet the contract."""

    facts: ModelFacts
    fingerprint: str
    reserved_token_ids: tuple[int, ...]
    random_weights: bool
    tokenizer_hash: str


def read_checkpoint(model: str) -> Checkpoint:
    """Read config.json, the tokenizer and every header; CheckpointError for what is amiss."""
    from engine.checkpoint_directory import is_random
    from engine.models.registry import open_checkpoint
    from engine.models.shards import fingerprint
    from engine.tokenizer import Tokenizer

    model_dir = model_directory(model)
    found = open_checkpoint(model_dir)
    found.check_headers()
    return Checkpoint(
        facts=found.facts,
        fingerprint=fingerprint(model_dir),
        reserved_token_ids=found.reserved_token_ids,
        random_weights=is_random(model_dir),
        tokenizer_hash=Tokenizer.load(model_dir).hash,
    )


def model_directory(model: str) -> Path:
    """Where the checkpoint of that path or name lies; CheckpointError where there is none.

    Where it is called as a shape of random weights is, the error names the command that makes it.
    """
    from engine.checkpoint_directory import resolve_model_dir
    from engine.errors import CheckpointError

    try:
        return resolve_model_dir(model)
    except CheckpointError as error:
        from engine.models.dummy_causal import SHAPES

        shape = Path(model).name
        if shape not in SHAPES:
            raise
        made = f"python -m experiments.peers.random_model {shape} {shlex.quote(model)}"
        raise CheckpointError(
            error.what,
            where=error.where,
            remedy=f"`{made}` makes it, of random weights; or give an existing directory.",
        ) from error
