"""Which token comes next: the rules of requests, and what of them `kernels.sampling` is told.

The choice is a pure function of (logits at n, parameters, seed, position n): the definition is
that of `kernels.sampling.reference`. Here `min_tokens` bars the tokens that would stop a
sequence before, and golden tokens replace the choice after.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from struct import pack, unpack
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from kernels.sampling.reference import (
    GREEDY_BELOW,
    WEYL,
    Choice,
    Narrowing,
    SamplingRules,
    mixed,
    signed,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.request import SamplingParams
    from kernels.ops import Ops

_MANY = 1 << 40  # more than any vocabulary, and an int64

_WORD = (1 << 64) - 1


class SampledRows(NamedTuple):
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
        """Numbers that each sequence brings; floats as their bits. OTHER brings none so."""
        seeded = ("seed", "temperature")
        return ((), seeded, (*seeded, "top_k", "top_p"), ())[self]


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
    if not any(_is_narrow(group.params) for group in groups if _is_warm(group.params)):
        rules.ints.pop("warm_top_k", None)
        rules.floats.pop("warm_top_p", None)
    return rules


def choose(logits: Tensor, positions: Tensor, rules: Mapping[str, Tensor], ops: Ops) -> Choice:
    """Choose a token for each row of logits [L, vocab], each at its absolute position [L].

    `rules` are those that `collect_rules` found, as tensors. `min_tokens` bars the tokens that
    would stop the sequence; golden tokens replace the choice. Nothing waits for the device.
    """
    scores = _bar_stops(logits, positions, rules) if "bar_rows" in rules else logits
    token_ids, is_finite = ops.choose_highest(scores)
    if "warm_rows" in rules:
        rows = rules["warm_rows"]
        drawn = ops.choose_tokens(scores[rows], positions[rows], _warm_rules(rules))
        token_ids = token_ids.index_copy(0, rows, drawn.token_ids)
        is_finite = is_finite.index_copy(0, rows, drawn.is_finite)
    if "golden_rows" in rules:
        token_ids = _force_golden(token_ids, positions, rules)
    return Choice(token_ids, is_finite)


def slot_rule(params: SamplingParams, seed: int) -> tuple[ChoiceRule, dict[str, int]]:
    """The rule of one sequence whose `min_tokens` are behind it, and its numbers."""
    is_warm = _is_warm(params)
    numbers = {
        "seed": signed(mixed(seed & _WORD)),
        "temperature": _bits(params.temperature if is_warm else 0.0),
        "top_k": min(params.top_k or _MANY, _MANY),
        "top_p": _bits(params.top_p),
    }
    if params.logprobs is not None or params.golden_token_ids is not None:
        return ChoiceRule.OTHER, numbers
    if not is_warm:
        return ChoiceRule.GREEDY, numbers
    return (ChoiceRule.NARROWED if _is_narrow(params) else ChoiceRule.SEEDED), numbers


def rules_of(rule: ChoiceRule, numbers: Mapping[str, Tensor]) -> SamplingRules | None:
    """The rules of the sequences of a uniform step, of which `rule` is the widest; None of greedy
    ones.

    numbers: the `fields` of the rule, [sequences] each. Keeps the graph rule.
    """
    if rule is ChoiceRule.GREEDY:
        return None
    narrowing = None
    if rule is ChoiceRule.NARROWED:
        narrowing = _narrowing(numbers["top_k"], numbers["top_p"].view(torch.float64))
    return SamplingRules(
        temperatures=numbers["temperature"].view(torch.float64),
        seeds=numbers["seed"],
        narrowing=narrowing,
    )


def draw_seed(engine_seed: int, ordinal: int) -> int:
    """Seed of the `ordinal`-th request that brings none."""
    return mixed(mixed(engine_seed & _WORD) ^ mixed((ordinal + 1) * WEYL & _WORD))


def _is_warm(params: SamplingParams) -> bool:
    return params.temperature >= GREEDY_BELOW


def _is_narrow(params: SamplingParams) -> bool:
    return params.top_p < 1 or params.top_k is not None


def _collect_warm(rules: Rules, group: SampledRows, start: int) -> None:
    params = group.params
    ints = {
        "warm_seeds": signed(mixed(group.seed & _WORD)),
        "warm_top_k": min(params.top_k or _MANY, _MANY),
    }
    floats = {"warm_temperatures": params.temperature, "warm_top_p": params.top_p}
    rules.ints.setdefault("warm_rows", []).extend(range(start, start + group.rows))
    for name, value in ints.items():
        rules.ints.setdefault(name, []).extend([value] * group.rows)
    for name, number in floats.items():
        rules.floats.setdefault(name, []).extend([number] * group.rows)


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


def _warm_rules(rules: Mapping[str, Tensor]) -> SamplingRules:
    narrowing = None
    if "warm_top_k" in rules:
        narrowing = _narrowing(rules["warm_top_k"], rules["warm_top_p"])
    return SamplingRules(
        temperatures=rules["warm_temperatures"], seeds=rules["warm_seeds"], narrowing=narrowing
    )


def _narrowing(top_k: Tensor, top_p: Tensor) -> Narrowing:
    return Narrowing(top_k=top_k, top_p=top_p, min_p=torch.zeros_like(top_p))


def _bits(value: float) -> int:
    return unpack("<q", pack("<d", value))[0]


def _force_golden(token_ids: Tensor, positions: Tensor, rules: Mapping[str, Tensor]) -> Tensor:
    rows = rules["golden_rows"]
    wanted = positions[rows] + rules["golden_shift"]
    forced = rules["golden_ids"][torch.minimum(wanted, rules["golden_last"])]
    return token_ids.index_copy(0, rows, forced)
