"""Metrics that only other tools report: part of the catalogue so that they can be on a front."""

from __future__ import annotations

from experiments.metric_specs import Direction, MetricSpec


def _rate(name: str, label: str, unit: str, definition: str) -> MetricSpec:
    return MetricSpec(
        name=name, label=label, unit=unit, direction=Direction.MAX, statistic="rate",
        basis="window", definition=definition,
    )  # fmt: skip


def _per_token(statistic: str) -> MetricSpec:
    return MetricSpec(
        name=f"e2e_token_s_{statistic}",
        label=f"E2E per output token {statistic}",
        unit="s",
        direction=Direction.MIN,
        statistic=statistic,
        basis="requests",
        definition="E2E / output tokens, one value a request: TTFT is in it, so it is no TPOT",
    )


FOREIGN_METRICS: dict[str, MetricSpec] = {
    spec.name: spec
    for spec in (
        _rate("total_tok_s_device", "Total throughput per device", "tok/s/device",
              "(prompt + output tokens) / time / devices allocated to the configuration"),
        _rate("input_tok_s", "Input throughput", "tok/s", "prompt tokens / time"),
        *map(_per_token, ("mean", "p50", "p90", "p99")),
    )
}  # fmt: skip
"""By name. Runs that were measured here do not hold them, but `total_tok_s_device`: derived."""
