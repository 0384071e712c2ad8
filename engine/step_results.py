"""What the host makes of the numbers that a step brings back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine.logprobs import entries
from engine.step import NO_LOGPROBS, SequenceResult, new_tuple
from kernels.logprobs.reference import LogprobRows

if TYPE_CHECKING:
    from torch import Tensor

    from engine.decode_inputs import DecodeInputs
    from engine.request import TokenLogprob
    from engine.step import ScheduledSequence
    from engine.step_inputs import LogitSpan, StepInputs

_NOT_FINITE = "the model returned logits that are not finite (NaN or infinity)"


def results_of(inputs: StepInputs, packed: Tensor, *wanted: Tensor) -> list[SequenceResult]:
    """One result for each sequence of a step, in order.

    packed holds the chosen tokens, whether their rows are finite, and how many drafts of each
    sequence that samples stand; `wanted` are the fields of `LogprobRows`, if any were asked for.
    """
    choices = sum(span.choice_rows for span in inputs.spans)
    numbers: list[int] = packed.tolist()
    tokens, finite = numbers[:choices], numbers[choices : 2 * choices]
    accepted = iter(numbers[2 * choices :])
    rows = LogprobRows(*wanted) if wanted else None
    are_finite = all(finite)
    results: list[SequenceResult] = []
    for entry, span in zip(inputs.entries, inputs.spans, strict=True):
        stands = next(accepted) if span.choice_rows else 0
        count = stands + 1 if span.choice_rows else 0
        own = slice(span.choice_start, span.choice_start + count)
        if not (are_finite or all(finite[own])):
            results.append(SequenceResult(error=_NOT_FINITE))
        elif rows is None:
            fields = (tuple(tokens[own]), stands, (), NO_LOGPROBS, None)
            results.append(new_tuple(SequenceResult, fields))
        else:
            results.append(_result(entry, span, tokens[own], rows))
    return results


def decode_results_of(inputs: DecodeInputs, packed: Tensor) -> list[SequenceResult]:
    """The same of a uniform decode step, whose sequences have as many rows each, used or not."""
    shape = inputs.key.shape
    choices = shape.sequences * shape.rows
    tokens, finite, accepted = np.split(packed.numpy(), (choices, 2 * choices))
    counts = accepted.tolist()[: len(inputs.entries)]  # behind the entries there is padding
    chosen = zip(*tokens.reshape(-1, shape.rows).T.tolist(), strict=True)
    results = [
        new_tuple(SequenceResult, (token_ids[: stands + 1], stands, (), NO_LOGPROBS, None))
        for token_ids, stands in zip(chosen, counts, strict=False)
    ]
    if not finite.all():
        rows = finite.reshape(-1, shape.rows).tolist()
        for index, stands in enumerate(counts):
            if not all(rows[index][: stands + 1]):
                results[index] = SequenceResult(error=_NOT_FINITE)
    return results


def _result(
    entry: ScheduledSequence, span: LogitSpan, token_ids: list[int], rows: LogprobRows
) -> SequenceResult:
    return SequenceResult(
        token_ids=tuple(token_ids),
        accepted=max(0, len(token_ids) - 1),
        logprobs=_of_tokens(entry, span, token_ids, rows),
        prompt_logprobs=_of_prompt(entry, span, rows),
    )


def _of_tokens(
    entry: ScheduledSequence, span: LogitSpan, token_ids: list[int], rows: LogprobRows
) -> tuple[TokenLogprob, ...]:
    top = entry.sequence.request.sampling.logprobs
    if top is None or not token_ids:
        return ()
    start = span.logprob_start + span.prompt_rows
    own = LogprobRows(*(tensor[start : start + len(token_ids)] for tensor in rows))
    return entries(own, token_ids, top=top)


def _of_prompt(
    entry: ScheduledSequence, span: LogitSpan, rows: LogprobRows
) -> dict[int, TokenLogprob]:
    """Of the prompt tokens that the rows predict, by position."""
    if not span.prompt_rows:
        return {}
    start, first = span.logprob_start, entry.first + 1
    own = LogprobRows(*(tensor[start : start + span.prompt_rows] for tensor in rows))
    token_ids = entry.sequence.tokens[first : first + span.prompt_rows]
    top = entry.sequence.request.sampling.logprobs or 0
    return dict(enumerate(entries(own, token_ids, top=top), first))
