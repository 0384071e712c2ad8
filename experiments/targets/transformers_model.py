"""A model of the transformers package, loaded for a target; what both ways of batching share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModelForCausalLM
from transformers.generation.streamers import BaseStreamer
from transformers.utils.logging import disable_progress_bar

from experiments.targets.peer_configs import TransformersConfig

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def load_model(config: TransformersConfig, attention: str) -> PreTrainedModel:
    """The model on its device, in eval mode; nothing is fetched from a network."""
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    disable_progress_bar()  # the terminal belongs to the run's own
    model: Any = AutoModelForCausalLM.from_pretrained(
        config.model,
        dtype=getattr(torch, config.dtype),
        attn_implementation=attention,
        local_files_only=True,
    )
    return model.to(config.accelerator).eval()


def eos_ids(model: PreTrainedModel) -> frozenset[int]:
    """The tokens that end a text of the model."""
    told = [getattr(model, "generation_config", None), model.config]
    found = next((e for one in told if (e := getattr(one, "eos_token_id", None)) is not None), ())
    return frozenset([found] if isinstance(found, int) else found)


class Steps(BaseStreamer):
    """Tells `heed` the tokens of every step, one a row; the prompt, which comes first, is not."""

    def __init__(self, heed: Callable[[Sequence[int]], None]) -> None:
        self._heed = heed
        self._prompt_came = False

    def put(self, value: torch.Tensor) -> None:
        """`value`: the prompts [rows, tokens], then [rows] at each step."""
        if not self._prompt_came:
            self._prompt_came = True
            return
        self._heed(value.reshape(-1).tolist())

    def end(self) -> None:
        """Each row told its own end."""
