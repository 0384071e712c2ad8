"""What a checkpoint directory says of itself, before any tensor is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.models.deepseek_v41.config import DeepseekV41Config
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
    from engine.models.deepseek_v41.config import DeepseekV41Config
    from engine.models.deepseek_v41.facts import facts_of
    from engine.models.deepseek_v41.weights import check_headers, fingerprint
    from engine.tokenizer import Tokenizer

    model_dir = model_directory(model)
    config = DeepseekV41Config.load(model_dir)
    check_headers(model_dir, config)
    return Checkpoint(
        facts=facts_of(config),
        fingerprint=fingerprint(model_dir),
        reserved_token_ids=_reserved(config),
        random_weights=is_random(model_dir),
        tokenizer_hash=Tokenizer.load(model_dir).hash,
    )


def model_directory(model: str) -> Path:
    """Where the checkpoint of that path or name lies; CheckpointError where there is none."""
    from engine.checkpoint_directory import resolve_model_dir

    return resolve_model_dir(model)


def _reserved(config: DeepseekV41Config) -> tuple[int, ...]:
    ids = (config.eos_token_id, config.bos_token_id, config.dspark_noise_token_id)
    return tuple(sorted({i for i in ids if i is not None}))
