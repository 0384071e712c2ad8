"""Which token comes next: a pure function of (logits at n, parameters, seed, position n).

Greedy (temperature below `GREEDY_BELOW`): the highest logit, the lowest id on ties. Sampled:
logits / temperature, then top-k, then top-p (nucleus of what top-k left, renormalised), then the
highest of score + Gumbel noise (which draws exactly from the softmax). The noise of token v at
absolute position n is a hash of (seed, n, v): SplitMix64 as a counter-based generator, so a text
does not depend on batch, chunks, preemptions or drafts.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from engine.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

    from engine.config import ModelLimits
    from engine.request import SamplingParams

GREEDY_BELOW = 1e-5  # as DeepInfer does; a colder division would overflow

_WORD = (1 << 64) - 1
_WEYL = 0x9E3779B97F4A7C15  # SplitMix64 (Steele, Lea, Flood 2014)
_MIX_A = 0xBF58476D1CE4E5B9
_MIX_B = 0x94D049BB133111EB


@dataclass(frozen=True, slots=True)
class SampledRows:
    """Consecutive logit rows of one sequence, and the rule for the tokens they choose."""

    params: SamplingParams
    seed: int
    rows: int
    position: int  # absolute position of the token that the first row chooses
    output_index: int  # the same, counted from the first generated token


def choose(logits: Tensor, groups: Sequence[SampledRows], eos_token_id: int) -> list[int | None]:
    """Choose a token for each row of logits [L, vocab]; None where a row is not finite.

    The groups cover the rows in order. `min_tokens` bars the tokens that would stop the
    sequence; golden tokens replace the choice.
    """
    scores = _bar_stops(logits, groups, eos_token_id)
    if any(_is_warm(group.params) for group in groups):
        scores = _add_noise(scores, groups)
    best, ids = scores.max(dim=-1)  # the first, so the lowest, of equal ones
    tokens: list[int | None] = ids.tolist()
    if not torch.isfinite(best).all():
        finite = torch.isfinite(best).tolist()
        tokens = [token if ok else None for token, ok in zip(tokens, finite, strict=True)]
    return _force_golden(tokens, groups)


def draw_seed(engine_seed: int, ordinal: int) -> int:
    """Seed of the `ordinal`-th request that brings none."""
    return _mix(_mix(engine_seed & _WORD) ^ _mix((ordinal + 1) * _WEYL & _WORD))


def _is_warm(params: SamplingParams) -> bool:
    return params.temperature >= GREEDY_BELOW


def _bar_stops(logits: Tensor, groups: Sequence[SampledRows], eos_token_id: int) -> Tensor:
    rows: list[int] = []
    ids: list[int] = []
    for start, group in _starts(groups):
        barred = min(group.rows, group.params.min_tokens - group.output_index)
        if barred > 0:
            eos = () if group.params.ignore_eos else (eos_token_id,)
            stops = (*group.params.stop_token_ids, *eos)
            rows += [row for row in range(start, start + barred) for _ in stops]
            ids += [*stops] * barred
    if not rows:
        return logits
    barred_logits = logits.clone()
    barred_logits[rows, ids] = -math.inf
    return barred_logits


def _add_noise(logits: Tensor, groups: Sequence[SampledRows]) -> Tensor:
    rows: list[int] = []
    keys: list[int] = []
    rules: list[SamplingParams] = []
    for start, group in _starts(groups):
        if _is_warm(group.params):
            rows += range(start, start + group.rows)
            keys += [_key(group.seed, group.position + i) for i in range(group.rows)]
            rules += [group.params] * group.rows
    scores = logits.double()
    index = torch.tensor(rows, device=logits.device)
    warm = scores[index] / scores.new_tensor([rule.temperature for rule in rules])[:, None]
    warm = _narrow(warm, rules)
    noise = _gumbel(keys, logits.shape[-1], logits.device)
    return scores.index_copy(0, index, warm + noise)


def _narrow(scores: Tensor, rules: Sequence[SamplingParams]) -> Tensor:
    """Set what top-k, then top-p, leaves out to -inf; only rows that ask are sorted."""
    rows = [i for i, r in enumerate(rules) if r.top_p < 1 or r.top_k is not None]
    if not rows:
        return scores
    vocab = scores.shape[-1]
    ordered, ids = scores[rows].sort(dim=-1, descending=True, stable=True)
    top_k = scores.new_tensor([min(rules[i].top_k or vocab, vocab) for i in rows])[:, None]
    top_p = scores.new_tensor([rules[i].top_p for i in rows])[:, None]
    beyond_k = torch.arange(vocab, device=scores.device) >= top_k
    share = ordered.masked_fill(beyond_k, -math.inf).softmax(dim=-1)
    before = share.cumsum(dim=-1) - share
    is_out = beyond_k | ((before >= top_p) & (top_p < 1))
    is_out[:, 0] = False  # rounding must not leave a row without a token
    kept = ordered.masked_fill(is_out, -math.inf)
    narrowed = scores.clone()
    narrowed[rows] = torch.empty_like(kept).scatter_(-1, ids, kept)
    return narrowed


def _force_golden(tokens: list[int | None], groups: Sequence[SampledRows]) -> list[int | None]:
    for start, group in _starts(groups):
        golden = group.params.golden_token_ids
        if golden is not None:
            forced = golden[group.output_index : group.output_index + group.rows]
            for row, token_id in enumerate(forced, start):
                tokens[row] = None if tokens[row] is None else token_id
    return tokens


def _starts(groups: Sequence[SampledRows]) -> Iterable[tuple[int, SampledRows]]:
    start = 0
    for group in groups:
        yield start, group
        start += group.rows


def _key(seed: int, position: int) -> int:
    return _mix(_mix(seed & _WORD) + (position + 1) * _WEYL & _WORD)


def _mix(word: int) -> int:
    word = (word ^ (word >> 30)) * _MIX_A & _WORD
    word = (word ^ (word >> 27)) * _MIX_B & _WORD
    return word ^ (word >> 31)


def _gumbel(keys: Sequence[int], vocab: int, device: torch.device) -> Tensor:
    base = torch.tensor([_signed(key) for key in keys], dtype=torch.int64, device=device)
    counter = torch.arange(1, vocab + 1, dtype=torch.int64, device=device) * _signed(_WEYL)
    word = base[:, None] + counter  # [rows, vocab], wraps like 64-bit words
    word = (word ^ _shifted(word, 30)) * _signed(_MIX_A)
    word = (word ^ _shifted(word, 27)) * _signed(_MIX_B)
    word = word ^ _shifted(word, 31)
    uniform = (_shifted(word, 12).double() + 0.5) * 2.0**-52  # never 0, never 1
    return uniform.log_().neg_().log_().neg_()


def _shifted(word: Tensor, bits: int) -> Tensor:
    return (word >> bits) & ((1 << (64 - bits)) - 1)


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def validate(params: SamplingParams, limits: ModelLimits, *, where: str) -> None:
    """Refuse parameters that cannot be served: RequestError names the field and the remedy."""
    for rules in (_rules_of_values, _rules_of_relations):
        for field, holds, remedy in rules(params, limits.vocab_size):
            if not holds:
                value = getattr(params, field)
                shown = f"of {len(value)} ids" if _is_many(value) else repr(value)
                raise RequestError(f"{field} {shown} is refused.", where=where, remedy=remedy)


_Rules = list[tuple[str, bool, str]]  # field, whether it is fine, remedy


def _rules_of_values(params: SamplingParams, vocab: int) -> _Rules:
    golden = params.golden_token_ids
    warm = _is_number(params.temperature) and params.temperature >= 0
    nucleus = _is_number(params.top_p) and 0 < params.top_p <= 1
    known_ids = f"Use a tuple of whole numbers from 0 to {vocab - 1}."
    structured = "Structured outputs have not landed; leave so_args out."
    return [
        ("temperature", warm, "Use 0 for the most likely token, or a finite number above 0."),
        ("top_p", nucleus, "Use a number above 0, at most 1."),
        ("top_k", _is_none_or_whole(params.top_k, 1), "Use None, or at least 1."),
        ("max_tokens", _is_whole(params.max_tokens, 1), "Use a whole number of at least 1."),
        ("min_tokens", _is_whole(params.min_tokens, 0), "Use a whole number of at least 0."),
        ("ignore_eos", isinstance(params.ignore_eos, bool), "Use True or False."),
        ("prompt_logprobs", isinstance(params.prompt_logprobs, bool), "Use True or False."),
        ("seq_seed", _is_none_or_whole(params.seq_seed, 0), "Use None, or at least 0."),
        ("logprobs", _is_none_or_whole(params.logprobs, 0), "Use None, or at least 0."),
        ("stop_token_ids", are_token_ids(params.stop_token_ids, vocab), known_ids),
        ("golden_token_ids", golden is None or are_token_ids(golden, vocab), known_ids),
        ("so_args", params.so_args is None, structured),
    ]


def _rules_of_relations(params: SamplingParams, vocab: int) -> _Rules:
    golden, longest = params.golden_token_ids, params.max_tokens
    enough = f"Give at least max_tokens ({longest}) ids, or lower max_tokens."
    return [
        ("min_tokens", params.min_tokens <= longest, f"Use at most max_tokens ({longest})."),
        ("logprobs", (params.logprobs or 0) <= vocab, f"Use at most {vocab}, the vocabulary."),
        ("golden_token_ids", golden is None or len(golden) >= longest, enough),
    ]


def are_token_ids(token_ids: object, vocab: int) -> bool:
    """Whether this is a tuple or list of ints (no bools, no numpy) inside the vocabulary."""
    return _is_many(token_ids) and all(
        _is_whole(token_id, 0) and token_id < vocab for token_id in token_ids
    )


def _is_many(value: object) -> bool:
    return isinstance(value, (tuple, list))


def _is_none_or_whole(value: object, least: int) -> bool:
    return value is None or _is_whole(value, least)


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_number(value: object) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and abs(value) <= sys.float_info.max  # an int may be too large for a float
