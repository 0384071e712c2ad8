"""What must be said wherever a number of a trial is shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from experiments.content import RandomIds
from experiments.foreign_cpu import foreign_label
from experiments.records import MetricValue

if TYPE_CHECKING:
    from experiments.plan import Plan
    from experiments.targets.base import TargetFacts

INDICATIVE = "indicative"
RANDOM_WEIGHTS = "random weights: acceptance is meaningless"
RANDOM_PROMPTS = "random prompts: real text is drafted with another acceptance"
SIMULATED = "simulated"
BURSTY = "tokens came in bursts: read ITL beside tokens per chunk"
BURSTY_FROM = 5
"""Mean ITL over its median from which the stream is called bursty."""
DEGENERATE = "the text is far shorter than its tokens: was the output degenerate?"
DEGENERATE_BELOW = 0.5
"""Tokens of the text by the client's tokenizer over those counted, below which that is asked."""

RESENT = "the server closed kept connections: some requests were sent twice (resent_requests)"
TPOT_DISPUTED = "client and server disagree on TPOT: one may count steps, not tokens"
DISPUTED_FROM = 1.3
"""The server's TPOT over the clients', or the other way round, from which that is said."""


def labels_beforehand(plan: Plan, facts: TargetFacts) -> tuple[str, ...]:
    """What is known of a trial before it is measured."""
    said = {
        INDICATIVE: plan.protocol.indicative,
        RANDOM_WEIGHTS: facts.random_weights,
        SIMULATED: facts.simulated,
    }
    return tuple(label for label, holds in said.items() if holds)


def labels_afterwards(
    metrics: Mapping[str, MetricValue], workload: Mapping[str, object], facts: TargetFacts
) -> tuple[str, ...]:
    """What the numbers themselves show to be odd, or to rest on content that nobody asks."""
    said = {
        RANDOM_PROMPTS: _drafted_on_random_ids(metrics, workload, facts),
        BURSTY: _bursty(metrics),
        DEGENERATE: _degenerate(metrics),
        TPOT_DISPUTED: _disputed(metrics),
        RESENT: bool(metrics["resent_requests"].value),
    }
    busy = foreign_label(metrics["foreign_cpu_percent"].value)
    return (*(label for label, holds in said.items() if holds), *([busy] if busy else []))


def _drafted_on_random_ids(
    metrics: Mapping[str, MetricValue], workload: Mapping[str, object], facts: TargetFacts
) -> bool:
    """Not of random weights or a simulation, whose own label says more."""
    drafted = metrics["acceptance_length"].value is not None
    said_already = facts.random_weights or facts.simulated
    return drafted and not said_already and workload.get("content") == RandomIds.name


def _bursty(metrics: Mapping[str, MetricValue]) -> bool:
    """A median gap far below the mean: tokens come in bursts, and the median tells of neither."""
    mean, median = metrics["itl_s_mean"].value, metrics["itl_s_p50"].value
    return mean is not None and median is not None and mean > BURSTY_FROM * median


def _degenerate(metrics: Mapping[str, MetricValue]) -> bool:
    ratio = metrics["retokenised_ratio"].value
    return ratio is not None and ratio < DEGENERATE_BELOW


def _disputed(metrics: Mapping[str, MetricValue]) -> bool:
    ratio = metrics["server_tpot_ratio"].value
    return ratio is not None and not 1 / DISPUTED_FROM <= ratio <= DISPUTED_FROM
