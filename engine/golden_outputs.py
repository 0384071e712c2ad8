"""The engine's side of a golden comparison: every output, computed as the golden's was."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.batch import Capture
from engine.models.deepseek_v41.model import DeepseekV41Model
from engine.models.single import SingleSequence
from kernels.topk.reference import first_argmax

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from engine.golden import Golden
    from engine.models.deepseek_v41.config import DeepseekV41Config
    from kernels.matmul.weights import Weight

NUDGE = 2.0**-23  # largest relative change of a weight in `nudged_logits`


class Feeding(StrEnum):
    """How the tokens reached the model."""

    AT_ONCE = "at once"
    UNEVEN = "uneven chunks"
    SINGLY = "token by token"
    SERVED = "engine"
    SERVED_CHUNKED = "engine, few rows a step"
    DRAFTED = "engine with drafts"
    DRAFTED_CHUNKED = "engine with drafts, few rows a step"


@dataclass(frozen=True, kw_only=True)
class GoldenOutputs:
    """Computes what the golden keys hold, from the weights of the checkpoint."""

    config: DeepseekV41Config
    golden: Golden
    weights: dict[str, Tensor]
    token_map: Sequence[int]
    device: torch.device | str

    def model(self, weights: Mapping[str, Weight], *, released_caches: bool) -> DeepseekV41Model:
        """A float32 model of these weights, which may differ from the checkpoint's."""
        return DeepseekV41Model(
            self.config,
            weights,
            dtype=torch.float32,
            released_caches=released_caches,
            engram_token_map=self.token_map,
        )

    def all_keys(self, model: DeepseekV41Model, feeding: Feeding) -> dict[str, Tensor]:
        """Every key, named without its `fp32.` or `qdq.`."""
        return (
            self._whole(model, feeding)
            | self._continued(model, feeding)
            | self._replay(model, feeding)
        )

    def nudged_logits(self, seed: int) -> Tensor:
        """Logits at once with rounded caches, every weight changed by up to `NUDGE` of itself."""
        source = torch.Generator().manual_seed(seed)
        nudged = {
            name: (weight.double() * (1 + NUDGE * _noise(weight, source))).to(weight.dtype)
            for name, weight in self.weights.items()
        }
        return self._sequence(self.model(nudged, released_caches=True)).run(self.golden.ids)

    def _whole(self, model: DeepseekV41Model, feeding: Feeding) -> dict[str, Tensor]:
        sequence, captures = self._sequence(model), []
        logits = []
        for chunk in self._chunks(feeding, len(self.golden.ids)):
            captures.append(Capture())
            logits.append(sequence.run(chunk, captures[-1]))
        keys = captures[0].values
        captured = {key: torch.cat([c.values[key] for c in captures]) for key in keys}
        return {"logits": torch.cat(logits)} | captured

    def _continued(self, model: DeepseekV41Model, feeding: Feeding) -> dict[str, Tensor]:
        """The draft after the prompt, and the greedy continuation (drafting leaves no trace)."""
        sequence = self._sequence(model)
        anchor = first_argmax(self._prefill(sequence, feeding)[-1:])
        drafted = self._draft(sequence, anchor, model.facts.draft_block)
        tokens = [int(anchor)]
        while len(tokens) < self.golden.lengths.greedy_tokens:
            tokens.append(int(first_argmax(sequence.run(tokens[-1:]))))
        return drafted | {"greedy.ids": torch.tensor(tokens)}

    def _draft(self, sequence: SingleSequence, anchor: Tensor, length: int) -> dict[str, Tensor]:
        """Nothing for a checkpoint without draft stages."""
        if length == 0:
            return {}
        draft = sequence.draft(int(anchor), length)
        return {
            "dspark.ids": torch.cat((anchor, draft.token_ids[0])),
            "dspark.logits": draft.logits[0],
            "dspark.conf": draft.confidence[0],
        }

    def _replay(self, model: DeepseekV41Model, feeding: Feeding) -> dict[str, Tensor]:
        lengths = self.golden.lengths
        start = lengths.prompt_length - lengths.replay_keep
        sequence = self._sequence(model, decoder_start=start)
        prefilled = self._prefill(sequence, feeding)
        forced = self.golden.ids[lengths.prompt_length :][: lengths.decode_after_replay]
        decoded = [sequence.run([token]) for token in forced]
        return {"replay.logits": prefilled, "replay.decode_logits": torch.cat(decoded)}

    def _prefill(self, sequence: SingleSequence, feeding: Feeding) -> Tensor:
        chunks = self._chunks(feeding, self.golden.lengths.prompt_length)
        return torch.cat([sequence.run(chunk) for chunk in chunks])

    def _chunks(self, feeding: Feeding, length: int) -> Iterator[tuple[int, ...]]:
        sizes = {
            Feeding.UNEVEN: self.golden.lengths.uneven_chunks,
            Feeding.SINGLY: (1,) * length,
        }.get(feeding, (length,))
        start = 0
        for size in sizes:
            if start < length:
                yield self.golden.ids[start : min(start + size, length)]
            start += size

    def _sequence(self, model: DeepseekV41Model, *, decoder_start: int = 0) -> SingleSequence:
        return SingleSequence(
            model,
            capacity=len(self.golden.ids) + self.golden.lengths.greedy_tokens,
            dtype=torch.float32,
            device=self.device,
            decoder_start=decoder_start,
        )


def _noise(weight: Tensor, source: torch.Generator) -> Tensor:
    """Uniform float64 in -1..1, drawn on the CPU so that every device nudges alike."""
    draw = torch.rand(weight.shape, generator=source, dtype=torch.float64)
    return (2 * draw - 1).to(weight.device)
