"""Routing against a loop."""

import math

import torch

from kernels.routing.reference import Router, route


def router(experts=6, width=4, **changes):
    fields = {
        "weight": torch.randn(experts, width, dtype=torch.float64),
        "bias": torch.randn(experts, dtype=torch.float64),
        "experts_per_token": 3,
        "normalise": True,
        "scale": 1.5,
    }
    return Router(**(fields | changes))


def naive(x, found):
    affinity = [math.sqrt(math.log1p(math.exp(float(row @ x)))) for row in found.weight]
    order = sorted(range(len(affinity)), key=lambda e: (-(affinity[e] + float(found.bias[e])), e))
    chosen = order[: found.experts_per_token]
    weights = [affinity[e] for e in chosen]
    total = sum(weights) if found.normalise and len(chosen) > 1 else 1.0
    return chosen, [w / total * found.scale for w in weights]


def check(found):
    x = torch.randn(10, 4, dtype=torch.float64)
    experts, weights = route(x, found)
    for r in range(10):
        chosen, expected = naive(x[r], found)
        assert experts[r].tolist() == chosen
        torch.testing.assert_close(weights[r].tolist(), expected)


def test_bias_chooses_and_affinity_weighs():
    check(router())


def test_weights_may_stay_unnormalised():
    check(router(normalise=False))


def test_a_single_expert_keeps_its_affinity():
    check(router(experts_per_token=1))


def test_equal_affinities_go_to_the_lowest_ids():
    found = router(weight=torch.zeros(6, 4), bias=torch.tensor([0.0, 1.0, 1.0, 1.0, 1.0, 0.0]))
    assert route(torch.randn(2, 4), found)[0].tolist() == [[1, 2, 3], [1, 2, 3]]
