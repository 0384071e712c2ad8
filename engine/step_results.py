"""What the host makes of the numbers that a step brings back."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from engine.batch import StepShape
from engine.logprobs import entries
from engine.step import StepResults
from kernels.logprobs.reference import LogprobRows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from engine.decode_inputs import DecodeInputs
    from engine.mixed_inputs import MixedInputs
    from engine.request import TokenLogprob
    from engine.step import ScheduledSequence
    from engine.step_inputs import LogitSpan, StepInputs

    Ints = NDArray[np.int64]

_NOT_FINITE = "the model returned logits that are not finite (NaN or infinity)"


def results_of(inputs: StepInputs, packed: Tensor, *wanted: Tensor) -> StepResults:
    """What each sequence of a step has.

    packed holds the chosen tokens, whether their rows are finite, and how many drafts of each
    sequence that samples stand; `wanted` are the fields of `LogprobRows`, if any were asked for.
    """
    choices = sum(span.choice_rows for span in inputs.spans)
    numbers: list[int] = packed.tolist()
    tokens, finite = numbers[:choices], numbers[choices : 2 * choices]
    stands = iter(numbers[2 * choices :])
    accepted = [next(stands) if span.choice_rows else 0 for span in inputs.spans]
    chosen = [_chosen(span, stand) for span, stand in zip(inputs.spans, accepted, strict=True)]
    results = StepResults.of_tokens([tuple(tokens[own]) for own in chosen], accepted)
    if not all(finite):
        _mark_failed(results, [all(finite[own]) for own in chosen])
    if wanted:
        _add_logprobs(results, inputs, LogprobRows(*wanted))
    return results


def decode_results_of(inputs: DecodeInputs, packed: Tensor) -> StepResults:
    """The same of a uniform decode step, whose sequences have as many rows each, used or not."""
    return _decoded(packed, inputs.key.shape, inputs.sequences)


def mixed_results_of(inputs: MixedInputs, *packed: Tensor) -> StepResults:
    """The same of a step of sequences that decode, if any do, and of chunks."""
    *decoded, chosen = packed
    shape, own = inputs.key.shape, inputs.entries[inputs.decoding :]
    each = StepShape(sequences=shape.chunks, rows=1, context=shape.context)
    chunks = _decoded(chosen, each, len(own))
    for index, entry in enumerate(own):
        if not entry.samples:
            chunks.token_ids[index], chunks.errors[index] = (), None
    if not decoded:
        return chunks
    both = zip(_decoded(decoded[0], shape, inputs.decoding), chunks, strict=True)
    return StepResults(*(ahead + behind for ahead, behind in both))


def _decoded(packed: Tensor, shape: StepShape, count: int) -> StepResults:
    """Of the first `count` sequences of one row that `DecodeStep.run` returns."""
    choices = shape.sequences * shape.rows
    numbers: Ints = packed.numpy()
    tokens, finite = numbers[:choices], numbers[choices : 2 * choices]
    end = 2 * choices + count  # behind them there is padding
    stands: list[int] = numbers[2 * choices : end].tolist()
    chosen = zip(*tokens.reshape(-1, shape.rows).T.tolist(), strict=True)
    if shape.rows == 1:
        token_ids = list(islice(chosen, len(stands)))
    else:
        token_ids = [ids[: stand + 1] for ids, stand in zip(chosen, stands, strict=False)]
    results = StepResults.of_tokens(token_ids, stands)
    if not finite.all():
        rows = finite.reshape(-1, shape.rows).tolist()
        own = zip(rows, stands, strict=False)
        _mark_failed(results, [all(row[: stand + 1]) for row, stand in own])
    return results


def _chosen(span: LogitSpan, stand: int) -> slice:
    """Where the tokens that stand lie among the chosen ones."""
    return slice(span.choice_start, span.choice_start + (stand + 1 if span.choice_rows else 0))


def _mark_failed(results: StepResults, are_finite: list[bool]) -> None:
    results.errors[:] = [None if is_finite else _NOT_FINITE for is_finite in are_finite]


def _add_logprobs(results: StepResults, inputs: StepInputs, rows: LogprobRows) -> None:
    for index, (entry, span) in enumerate(zip(inputs.entries, inputs.spans, strict=True)):
        if results.errors[index] is None:
            results.logprobs[index] = _of_tokens(entry, span, results.token_ids[index], rows)
            results.prompt_logprobs[index] = _of_prompt(entry, span, rows)


def _of_tokens(
    entry: ScheduledSequence, span: LogitSpan, token_ids: tuple[int, ...], rows: LogprobRows
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
