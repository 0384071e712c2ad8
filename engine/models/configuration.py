"""Which architecture a checkpoint directory holds, by its `config.json`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.checkpoint_directory import CONFIG_FILE, read_config
from engine.models.causal_lm.config import CausalConfig, architecture_of
from engine.models.deepseek_v41.config import DeepseekV41Config

if TYPE_CHECKING:
    from pathlib import Path


def load_config(model_dir: Path) -> CausalConfig | DeepseekV41Config:
    """Read and check the configuration. CheckpointError where no architecture fits it."""
    document = read_config(model_dir)
    kind = DeepseekV41Config if architecture_of(document) is None else CausalConfig
    return kind.from_document(document, where=str(model_dir / CONFIG_FILE))
