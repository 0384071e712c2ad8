"""Which token comes next: a pure function of (logits at n, parameters, seed, position n).

Greedy (temperature below `GREEDY_BELOW`): the highest logit, the lowest id on ties. Sampled:
logits / temperature, then top-k, then top-p (nucleus of what top-k left, renormalised), then the
highest of score + Gumbel noise (which draws exactly from the softmax). The noise of token v at
absolute position n is a hash of (seed, n, v): SplitMix64 as a counter-based generator, so a text
does not depend on batch, chunks, preemptions or drafts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from struct import pack, unpack
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.request import SamplingParams

GREEDY_BELOW = 1e-5  # as DeepInfer does; a colder division would overflow

_MANY = 1 << 40  # more than any vocabulary, and an int64

_WORD = (1 << 64) - 1
_WEYL = 0x9E3779B97F4A7C15  # SplitMix64 (Steele, Lea, Flood 2014)
_MIX_A = 0xBF58476D1CE4E5B9
_MIX_B = 0x94D049BB133111EB


@dataclass(frozen=True, slots=True)
class SampledRows:
    """Consecutive logit rows of one sequence, and the rule for the tokens they choose.

    The host may not know yet which output the first row chooses: at least number
    `least_output`, at most `most_output`, counted from 0.
    """

    params: SamplingParams
    seed: int
    rows: int
    prompt_tokens: int
    least_output: int
    most_output: int


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a step's rows as plain numbers by name, to be put on the device as they are."""

    ints: dict[str, list[int]]
    floats: dict[str, list[float]]


class ChoiceRule(IntEnum):
    """How the sequences of a uniform step choose; a wider rule can say what a narrower one does."""

    GREEDY = 0
    SEEDED = 1
    NARROWED = 2  # seeded, by top-k or top-p
    OTHER = 3  # log-probabilities, golden tokens: not of a uniform step

    @property
    def fields(self) -> tuple[str, ...]:
        """Numbers that each sequence brings; floats as their bits."""
        seeded = ("is_warm", "seed", "temperature")
        return ((), seeded, (*seeded, "top_k", "top_p"))[self]


class Choice(NamedTuple):
    """Chosen tokens [L]; those of rows that are not finite mean nothing."""

    token_ids: Tensor
    is_finite: Tensor


def collect_rules(groups: Sequence[SampledRows], eos_token_id: int) -> Rules:
    """What `choose` must know of groups that cover its rows in order; nothing of plain greedy."""
    rules = Rules({}, {})
    start = 0
    for group in groups:
        if _is_warm(group.params):
            _collect_warm(rules, group, start)
        if group.params.min_tokens > group.least_output:
            _collect_bars(rules, group, start, eos_token_id)
        if group.params.golden_token_ids is not None:
            _collect_golden(rules, group, start)
        start += group.rows
    return rules


def choose(logits: Tensor, positions: Tensor, rules: Mapping[str, Tensor]) -> Choice:
    """Choose a token for each row of logits [L, vocab], each at its absolute position [L].

    `rules` are those that `collect_rules` found, as tensors. `min_tokens` bars the tokens that
    would stop the sequence; golden tokens replace the choice. Nothing waits for the device.
    """
    scores = _bar_stops(logits, positions, rules) if "bar_rows" in rules else logits
    if "warm_rows" in rules:
        scores = _add_noise(scores, positions, rules)
    best, token_ids = scores.max(dim=-1)  # the first, so the lowest, of equal ones
    if "golden_rows" in rules:
        token_ids = _force_golden(token_ids, positions, rules)
    return Choice(token_ids, torch.isfinite(best))


def slot_rule(params: SamplingParams, seed: int) -> tuple[ChoiceRule, dict[str, int]]:
    """The rule of one sequence whose `min_tokens` are behind it, and its numbers."""
    is_warm = _is_warm(params)
    numbers = {
        "is_warm": int(is_warm),
        "seed": _signed(_mix(seed & _WORD)),
        "temperature": _bits(params.temperature if is_warm else 1.0),
        "top_k": min(params.top_k or _MANY, _MANY),
        "top_p": _bits(params.top_p),
    }
    if params.logprobs is not None or params.golden_token_ids is not None:
        return ChoiceRule.OTHER, numbers
    if not is_warm:
        return ChoiceRule.GREEDY, numbers
    is_narrow = params.top_p < 1 or params.top_k is not None
    return (ChoiceRule.NARROWED if is_narrow else ChoiceRule.SEEDED), numbers


def choose_by_rule(
    logits: Tensor, positions: Tensor, rule: ChoiceRule, numbers: Mapping[str, Tensor]
) -> Choice:
    """`choose` where every sequence has as many rows, and `rule` is the widest of them.

    numbers: the `fields` of the rule, [sequences] each. Keeps the graph rule.
    """
    scores = logits
    if rule is not ChoiceRule.GREEDY:
        rows = len(logits) // len(numbers["is_warm"])
        each = {name: _for_rows(numbers[name], rows) for name in rule.fields}
        warm = logits.double() / each["temperature"].view(torch.float64)[:, None]
        if rule is ChoiceRule.NARROWED:
            warm = _narrowed(warm, each["top_k"], each["top_p"].view(torch.float64))
        keys = _mix_words(each["seed"] + (positions + 1) * _signed(_WEYL))
        noisy = warm + _gumbel(keys, logits.shape[-1])
        scores = torch.where(each["is_warm"].bool()[:, None], noisy, logits.double())
    best, token_ids = scores.max(dim=-1)  # the first, so the lowest, of equal ones
    return Choice(token_ids, torch.isfinite(best))


def draw_seed(engine_seed: int, ordinal: int) -> int:
    """Seed of the `ordinal`-th request that brings none."""
    return _mix(_mix(engine_seed & _WORD) ^ _mix((ordinal + 1) * _WEYL & _WORD))


def _is_warm(params: SamplingParams) -> bool:
    return params.temperature >= GREEDY_BELOW


def _collect_warm(rules: Rules, group: SampledRows, start: int) -> None:
    params, rows = group.params, range(start, start + group.rows)
    warm = rules.ints.setdefault("warm_rows", [])
    if params.top_p < 1 or params.top_k is not None:
        narrow = range(len(warm), len(warm) + group.rows)
        rules.ints.setdefault("narrow_rows", []).extend(narrow)
        top_k = min(params.top_k or _MANY, _MANY)
        rules.ints.setdefault("narrow_top_k", []).extend([top_k] * group.rows)
        rules.floats.setdefault("narrow_top_p", []).extend([params.top_p] * group.rows)
    warm.extend(rows)
    base = _signed(_mix(group.seed & _WORD))
    rules.ints.setdefault("warm_seeds", []).extend([base] * group.rows)
    temperatures = [params.temperature] * group.rows
    rules.floats.setdefault("warm_temperatures", []).extend(temperatures)


def _collect_bars(rules: Rules, group: SampledRows, start: int, eos_token_id: int) -> None:
    eos = () if group.params.ignore_eos else (eos_token_id,)
    stops = (*group.params.stop_token_ids, *eos)
    until = group.prompt_tokens + group.params.min_tokens
    for row in range(start, start + group.rows):
        if stops:
            rules.ints.setdefault("bar_rows", []).extend([row] * len(stops))
            rules.ints.setdefault("bar_ids", []).extend(stops)
            rules.ints.setdefault("bar_until", []).extend([until] * len(stops))


def _collect_golden(rules: Rules, group: SampledRows, start: int) -> None:
    golden = group.params.golden_token_ids
    assert golden is not None, "asked for by the caller"
    ids = golden[group.least_output : group.most_output + group.rows]
    flat = rules.ints.setdefault("golden_ids", [])
    first = len(flat)
    flat.extend(ids)
    rules.ints.setdefault("golden_rows", []).extend(range(start, start + group.rows))
    shift = first - group.prompt_tokens - group.least_output
    rules.ints.setdefault("golden_shift", []).extend([shift] * group.rows)
    rules.ints.setdefault("golden_last", []).extend([len(flat) - 1] * group.rows)


def _bar_stops(logits: Tensor, positions: Tensor, rules: Mapping[str, Tensor]) -> Tensor:
    rows, ids = rules["bar_rows"], rules["bar_ids"]
    is_barred = positions[rows] < rules["bar_until"]
    barred = logits.clone()
    # One id may be barred twice, so nothing but the bar may be written.
    barred[rows, ids] = torch.where(is_barred, -math.inf, logits[rows, ids])
    return barred


def _add_noise(logits: Tensor, positions: Tensor, rules: Mapping[str, Tensor]) -> Tensor:
    rows = rules["warm_rows"]
    scores = logits.double()
    warm = scores[rows] / rules["warm_temperatures"][:, None]
    if "narrow_rows" in rules:
        warm = _narrow(warm, rules)
    keys = _mix_words(rules["warm_seeds"] + (positions[rows] + 1) * _signed(_WEYL))
    return scores.index_copy(0, rows, warm + _gumbel(keys, logits.shape[-1]))


def _narrow(scores: Tensor, rules: Mapping[str, Tensor]) -> Tensor:
    """Set what top-k, then top-p, leaves out to -inf; only rows that ask are sorted."""
    rows = rules["narrow_rows"]
    kept = _narrowed(scores[rows], rules["narrow_top_k"], rules["narrow_top_p"])
    return scores.index_copy(0, rows, kept)


def _narrowed(scores: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """The same for every row of scores [rows, vocab]."""
    ordered, ids = scores.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(scores.shape[-1], device=scores.device)
    beyond_k, top_p = rank >= top_k[:, None], top_p[:, None]
    share = ordered.masked_fill(beyond_k, -math.inf).softmax(dim=-1)
    before = share.cumsum(dim=-1) - share
    is_out = beyond_k | ((before >= top_p) & (top_p < 1))
    is_out[:, :1].fill_(False)  # rounding must not leave a row without a token
    kept = ordered.masked_fill(is_out, -math.inf)
    return torch.empty_like(kept).scatter_(-1, ids, kept)


def _for_rows(values: Tensor, rows: int) -> Tensor:
    """Values of sequences for each of their rows."""
    return values.unsqueeze(1).expand(-1, rows).flatten()


def _bits(value: float) -> int:
    return unpack("<q", pack("<d", value))[0]


def _force_golden(token_ids: Tensor, positions: Tensor, rules: Mapping[str, Tensor]) -> Tensor:
    rows = rules["golden_rows"]
    wanted = positions[rows] + rules["golden_shift"]
    forced = rules["golden_ids"][torch.minimum(wanted, rules["golden_last"])]
    return token_ids.index_copy(0, rows, forced)


def _mix(word: int) -> int:
    word = (word ^ (word >> 30)) * _MIX_A & _WORD
    word = (word ^ (word >> 27)) * _MIX_B & _WORD
    return word ^ (word >> 31)


def _mix_words(word: Tensor) -> Tensor:
    """`_mix` of int64 tensors, which wrap like 64-bit words."""
    word = (word ^ _shifted(word, 30)) * _signed(_MIX_A)
    word = (word ^ _shifted(word, 27)) * _signed(_MIX_B)
    return word ^ _shifted(word, 31)


def _gumbel(keys: Tensor, vocab: int) -> Tensor:
    """Noise [rows, vocab] from the keys of the rows."""
    counter = torch.arange(1, vocab + 1, dtype=torch.int64, device=keys.device) * _signed(_WEYL)
    word = _mix_words(keys[:, None] + counter)
    uniform = (_shifted(word, 12).double() + 0.5) * 2.0**-52  # never 0, never 1
    return uniform.log_().neg_().log_().neg_()


def _shifted(word: Tensor, bits: int) -> Tensor:
    return (word >> bits) & ((1 << (64 - bits)) - 1)


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word
