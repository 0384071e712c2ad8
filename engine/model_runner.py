"""Runs the steps of one replica on one device: draft, forward, choose, verify."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from engine import logprobs, sampling
from engine.sampling import SampledRows
from engine.speculation.verify import accept
from engine.step import SequenceResult
from engine.step_tensors import StepBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from engine.cache.storage import CacheStorage
    from engine.config import ResolvedConfig
    from engine.models.protocol import Model
    from engine.step import ScheduledBatch, ScheduledSequence
    from engine.step_tensors import LogitSpan

_NOT_FINITE = "the model returned logits that are not finite (NaN or infinity)"


class ModelRunner:
    """A model with its caches. Not thread safe."""

    def __init__(
        self, model: Model, caches: CacheStorage, resolved: ResolvedConfig, device: str
    ) -> None:
        self.decoder_rows_run = 0
        self.decoder_rows_skipped = 0
        self._model = model
        self._caches = caches
        self._eos_token_id = model.facts.eos_token_id
        self._builder = StepBuilder(
            ngram=model.facts.ngram, replay_mode=resolved.replay_mode, device=device
        )

    @torch.inference_mode()
    def run(self, batch: ScheduledBatch) -> list[SequenceResult]:
        """Run a step; one result for each of its sequences, in order."""
        entries = batch.sequences
        if not entries:
            return []
        drafts = self._draft(entries)
        step = self._builder.forward(entries, drafts)
        self.decoder_rows_run += step.decoder_rows
        self.decoder_rows_skipped += batch.tokens - step.decoder_rows
        logits = self._model.forward(step.batch, self._caches).logits
        chosen = self._choose(entries, step.spans, logits)
        return [
            _result(entry, span, guesses, chosen, logits)
            for entry, span, guesses in zip(entries, step.spans, drafts, strict=True)
        ]

    def _draft(self, entries: Sequence[ScheduledSequence]) -> list[list[int]]:
        drafting = [entry for entry in entries if entry.drafts]
        if not drafting:
            return [[] for _ in entries]
        longest = max(entry.drafts for entry in drafting)
        wanted = self._builder.draft([entry.sequence for entry in drafting], longest)
        guesses = iter(self._model.draft(wanted, self._caches).token_ids.tolist())
        return [next(guesses)[: entry.drafts] if entry.drafts else [] for entry in entries]

    def _choose(
        self,
        entries: Sequence[ScheduledSequence],
        spans: Sequence[LogitSpan],
        logits: Tensor,
    ) -> list[int | None]:
        """The target's token by logit row; None where it has none or is not finite."""
        groups = [
            _sampled_rows(entry, span)
            for entry, span in zip(entries, spans, strict=True)
            if span.choice_rows
        ]
        if not groups:
            return [None] * len(logits)
        if not any(span.prompt_rows for span in spans):
            return sampling.choose(logits, groups, self._eos_token_id)
        rows = [
            row
            for span in spans
            for row in range(span.choice_start, span.choice_start + span.choice_rows)
        ]
        chosen: list[int | None] = [None] * len(logits)
        found = sampling.choose(logits[rows], groups, self._eos_token_id)
        for row, token_id in zip(rows, found, strict=True):
            chosen[row] = token_id
        return chosen


def _sampled_rows(entry: ScheduledSequence, span: LogitSpan) -> SampledRows:
    sequence = entry.sequence
    return SampledRows(
        params=sequence.request.sampling,
        seed=sequence.seed,
        rows=span.choice_rows,
        position=len(sequence.tokens),
        output_index=sequence.output_tokens,
    )


def _result(
    entry: ScheduledSequence,
    span: LogitSpan,
    guesses: Sequence[int],
    chosen: Sequence[int | None],
    logits: Tensor,
) -> SequenceResult:
    targets = chosen[span.choice_start : span.choice_start + span.choice_rows]
    prompt = logprobs.of_prompt(entry, span, logits) if span.prompt_rows else {}
    if not targets:
        return SequenceResult(prompt_logprobs=prompt)
    accepted = accept(guesses, targets)
    tokens = [token for token in targets[: accepted + 1] if token is not None]
    if len(tokens) <= accepted:
        return SequenceResult(error=_NOT_FINITE)
    wanted = entry.sequence.request.sampling.logprobs
    rows = logits[span.choice_start : span.choice_start + len(tokens)]
    return SequenceResult(
        token_ids=tuple(tokens),
        accepted=accepted,
        logprobs=() if wanted is None else logprobs.of_tokens(rows, tokens, top=wanted),
        prompt_logprobs=prompt,
    )
