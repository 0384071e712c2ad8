"""What the parameters of a request may be."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from engine.errors import RequestError

if TYPE_CHECKING:
    from engine.config_rules import ModelLimits
    from engine.request import SamplingParams


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
    warm = is_number(params.temperature) and params.temperature >= 0
    nucleus = is_number(params.top_p) and 0 < params.top_p <= 1
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
        ("stop_strings", _are_texts(params.stop_strings), "Use a tuple of strings, none empty."),
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


def _are_texts(values: object) -> bool:
    return _is_many(values) and all(isinstance(value, str) and value for value in values)


def _is_many(value: object) -> bool:
    return isinstance(value, (tuple, list))


def _is_none_or_whole(value: object, least: int) -> bool:
    return value is None or _is_whole(value, least)


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_number(value: object) -> bool:
    """Whether this is a finite int or float, no bool."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and abs(value) <= sys.float_info.max  # an int may be too large for a float
