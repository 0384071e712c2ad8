"""What scheduling needs to know of a checkpoint, from its configuration alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.models.protocol import ModelFacts

if TYPE_CHECKING:
    from engine.models.deepseek_v41.config import DeepseekV41Config


def facts_of(config: DeepseekV41Config) -> ModelFacts:
    """Truncation needs every owner of global rows in the encoder half or at its border."""
    return ModelFacts(
        vocab_size=config.vocab_size,
        max_positions=config.max_position_embeddings,
        eos_token_id=config.eos_token_id,
        window=config.sliding_window,
        draft_block=config.dspark_block_size if config.num_nextn_predict_layers else 0,
        ngram=config.engram_max_ngram_size,
        can_truncate=config.kv_source_layer_ids[-1] <= config.decoder_layer,
        hidden_size=config.hidden_size,
    )
