"""Arms of one run that must give the same greedy tokens, held against each other when it is read.

Draft length, batch, chunking, replicas, kernels and `replay_mode: compact` against `mask` must
not change a token: trials that differ only in such things and were asked the same must answer
the same. Model, arithmetic, cache rows, device kind, `replay_mode: off` against the others and
the rows that replay keeps may change tokens, and make kinds of their own.

The reference of a trial is the first of its kind, in a fixed order, that was asked something
that it was asked too: `mask` before `compact`, then the shortest draft, the smallest batch, the
fewest replicas, then engine fields, repeat and trial id. A reference always stands earlier in
that order, so no two trials vouch for each other, and the first has none.

Arms of a plan are other engines: each is a kind of its own, and what it answers is also held
against the plan's reference arm, which is told and never a gate.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from experiments.arms import ARM_AXIS

BY_PRECISION = "by_precision"
ROUNDING_FLIPS = 0.02
"""Flips a token that rounding may cost where batches of other shapes add in another order.

Rounding flips near ties only, a few tokens in a thousand; a wrong row or kernel flips a large
share of all tokens at once. Between the two lies this limit.
"""
EXACT = {"dtype": ("float32", "float64"), "accelerator": ("cpu",), "cache_format": ("plain",)}
"""Where nothing is rounded far enough to flip a token: no flip is allowed."""
MAY_CHANGE_TOKENS = ("model", "dtype", "cache_format", "accelerator", ARM_AXIS)
SIMULATED = "simulated"
FINGERPRINT = re.compile(r"([0-9a-f]+)-([0-9a-f]+)-([0-9]{1,9})")
Document = Mapping[str, object]
Outputs = dict[str, tuple[int, ...]]
"""Output ids of a trial by what was asked."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One trial's greedy outputs against those of another that was asked the same."""

    reference: str
    requests: int  # that both were asked
    flips: int  # of those, outputs that differ
    tokens: int | None  # compared, each output up to its first difference; None: ids not kept
    first_difference: int | None  # earliest differing position of any output, from 0

    @property
    def flip_rate(self) -> float | None:
        """Flips a token; None where the ids that would tell were not kept."""
        return self.flips / self.tokens if self.tokens else None


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """What a trial is held against. None: no other trial of the run was asked the same."""

    must: Comparison | None  # the reference of its kind
    off: Comparison | None  # full prefill, for a trial with decoder truncation
    peer: Comparison | None  # the plan's reference arm, for a trial of another arm
    limit: float | None  # flips a token that `must` allows; None: the gate is off


def agreements(
    documents: Sequence[Document],
    limit: object,
    outputs: Callable[[str], Outputs],
    reference_arm: object = None,
) -> dict[str, Agreement]:
    """By trial id, for every document with outputs; `limit` is the plan's `gates.agreement`,
    `reference_arm` the arm that the others are held against.

    `outputs` reads the kept ids of a trial; asked only of pairs that differ.
    """
    arms = sorted((_Arm.of(d, c) for d in documents if (c := _came(d))), key=lambda arm: arm.order)
    kinds: dict[str, _Kind] = {}
    first = _Kind()
    for arm in arms:
        kinds.setdefault(arm.kind, _Kind()).add(arm)
        if arm.name == reference_arm:
            first.add(arm)
    return {
        arm.trial_id: Agreement(
            must=_against(kinds[arm.kind].reference(arm), arm, outputs),
            off=_against(kinds.get(arm.off_kind, _Kind()).earliest(arm), arm, outputs)
            if arm.off_kind != arm.kind
            else None,
            peer=_against(first.earliest(arm), arm, outputs) if arm.name != reference_arm else None,
            limit=_limit(limit, arm.engine),
        )
        for arm in arms
    }


@dataclass(frozen=True, kw_only=True)
class _Arm:
    """A trial as far as agreement goes."""

    trial_id: str
    name: object  # of the plan's arm; None in a plan without arms
    engine: Mapping[str, object]
    kind: str  # trials of one kind must agree
    off_kind: str  # the kind of the same numerics with full prefill
    order: tuple[object, ...]
    came: dict[str, tuple[str, int]]  # asked -> (hash of the output, its tokens)

    @classmethod
    def of(cls, document: Document, came: dict[str, tuple[str, int]]) -> _Arm:
        point = mapping(document.get("point"))
        engine, workload = mapping(point.get("engine")), mapping(point.get("workload"))
        mode = engine.get("replay_mode", "off")
        numerics = {name: engine.get(name) for name in MAY_CHANGE_TOKENS if name != "model"}
        numerics["checkpoint"] = point.get("checkpoint") or engine.get("model")
        truncation = None if mode == "off" else engine.get("replay_keep_tokens")
        return cls(
            trial_id=str(document["trial_id"]),
            name=engine.get(ARM_AXIS),
            engine=engine,
            kind=json.dumps([numerics, mode != "off", truncation], sort_keys=True),
            off_kind=json.dumps([numerics, False, None], sort_keys=True),
            order=(
                mode != "mask",
                *(
                    _number(value)
                    for value in (
                        engine.get("draft_length"),
                        workload.get("batch_size", workload.get("concurrency")),
                        engine.get("data_parallel_size"),
                    )
                ),
                json.dumps(engine, sort_keys=True, default=str),
                _number(document.get("repeat")),
                str(document["trial_id"]),
            ),
            came=came,
        )


class _Kind:
    """Arms that must agree, told in their order; who was asked what first."""

    def __init__(self) -> None:
        self._first: dict[str, _Arm] = {}

    def add(self, arm: _Arm) -> None:
        for one in arm.came:
            self._first.setdefault(one, arm)

    def earliest(self, arm: _Arm) -> _Arm | None:
        """The first arm that was asked anything that `arm` was asked."""
        shared = (self._first[one] for one in arm.came if one in self._first)
        return min(shared, key=lambda found: found.order, default=None)

    def reference(self, arm: _Arm) -> _Arm | None:
        """The same, or None where `arm` itself is the first."""
        found = self.earliest(arm)
        return None if found is None or found.trial_id == arm.trial_id else found


def _against(
    reference: _Arm | None, arm: _Arm, outputs: Callable[[str], Outputs]
) -> Comparison | None:
    if reference is None:
        return None
    shared = [one for one in arm.came if one in reference.came]
    differing = [one for one in shared if arm.came[one] != reference.came[one]]
    places = _first_differences(differing, outputs, reference.trial_id, arm.trial_id)
    equal_tokens = sum(arm.came[one][1] for one in set(shared).difference(differing))
    known = [place for place in places if place is not None]
    whole = len(known) == len(differing)
    return Comparison(
        reference=reference.trial_id,
        requests=len(shared),
        flips=len(differing),
        tokens=equal_tokens + sum(place + 1 for place in known) if whole else None,
        first_difference=min(known, default=None),
    )


def _first_differences(
    differing: Sequence[str], outputs: Callable[[str], Outputs], one: str, other: str
) -> list[int | None]:
    """The first differing position of each output; None where its ids were not kept."""
    if not differing:
        return []
    left, right = outputs(one), outputs(other)
    return [
        _first_difference(left[key], right[key]) if key in left and key in right else None
        for key in differing
    ]


def _first_difference(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    """Where one ends before the other, its end is the difference."""
    pairs = zip(left, right, strict=False)
    shorter = min(len(left), len(right))
    return next((place for place, (a, b) in enumerate(pairs) if a != b), shorter)


def _limit(asked: object, engine: Mapping[str, object]) -> float | None:
    if asked != BY_PRECISION:
        return float(asked) if isinstance(asked, int | float) else None
    exact = all(engine.get(name) in values for name, values in EXACT.items())
    return 0.0 if exact else ROUNDING_FLIPS


def _came(document: Document) -> dict[str, tuple[str, int]]:
    """What the stored fingerprints say. Simulated tokens mean nothing, and neither does damage."""
    told = document.get("outputs")
    if not isinstance(told, list) or mapping(document.get("point")).get("checkpoint") == SIMULATED:
        return {}
    found = (FINGERPRINT.fullmatch(str(one)) for one in cast("list[object]", told))
    return {one[1]: (one[2], int(one[3])) for one in found if one is not None}


def mapping(value: object) -> Mapping[str, object]:
    """The value itself, or nothing where it is no mapping."""
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
