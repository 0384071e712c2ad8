"""Plans with anything in place of any of their parts: refused in words, or sound."""

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.clock import VirtualClock
from experiments.plan import load_plan
from experiments.sweep import planned
from experiments.targets.factory import target_factory
from kernels.errors import WorkbenchError

SYNTHETIC = {
    "name": "s",
    "kind": "synthetic",
    "prompt_tokens": 8,
    "output_tokens": 4,
    "spread": 0.5,
    "prefix_hit": 0.5,
}
TRACE = {"name": "a", "kind": "trace", "path": "sample:mooncake", "max_rows": 9}
SHARED = {"name": "t", "target": "simulated", "workloads": [SYNTHETIC]}
BASES = {
    "grid": {
        **SHARED,
        "load": {"kind": "closed", "batch_size": 2},
        "axes": [
            {"product": {"batch_size": {"range": [1, 2]}, "draft_length": [0, 5]}},
            {"when": "draft_length > 0", "product": {"replay_keep_tokens": [140, 256]}},
        ],
        "where": "batch_size <= 4",
        "repeats": {"min": 2, "max": 3, "stop": {"metric": "output_tok_s", "rel_ci": 0.02}},
        "gates": {"error_rate": 0.1, "agreement": 0.1, "foreign_processes": 0},
        "slo": {"ttft_s": 1.0},
        "protocol": {"name": "quick", "measured_s": 1.0},
        "engine": {"model": "nano", "num_threads": 1},
    },
    "gamma": {**SHARED, "load": {"kind": "gamma", "rate": 4.0, "shape": 0.5}},
    "ramp": {**SHARED, "load": {"kind": "ramp", "rate_from": 1.0, "rate": 4.0, "ramp_s": 3.0}},
    "turns": {**SHARED, "load": {"kind": "sessions", "rate": 2.0, "turns": 2, "think_s": 0.1}},
    "decode": {**SHARED, "load": {"kind": "decode_batch", "batch_size": 2, "prompt_tokens": 8}},
    "prefill": {**SHARED, "load": {"kind": "prefill_step", "token_budget": 64, "prompt_tokens": 8}},
    "trace": {**SHARED, "workloads": [TRACE], "load": {"kind": "trace", "time_scale": 2.0}},
    "search": {
        **SHARED,
        "search": {
            "maximize": "output_tok_s",
            "over": {"batch_size": [1, 16]},
            "subject_to": ["ttft_s_p50 <= 0.5"],
            "method": "bisect",
        },
    },
    "server": {
        **SHARED,
        "target": "http",
        "http": {
            "url": "http://127.0.0.1:9",
            "model": "m",
            "api": "completions",
            "vocab_size": 100,
            "body": {"top_k": 1},
            "headers": {"X-A": "b"},
            "declared": {"engine": "e", "tp": 8},
        },
        "clients": 2,
        "load": {"kind": "poisson", "rate": 5.0},
    },
}
ODD = st.sampled_from(
    [
        *(10**12, 2**63, 10**400, -1, 0.0, 5e-324, 1e300, float("nan"), float("inf"), True),
        *("", "a", "1e5", "auto", "sample:", "/dev/zero", "..", "\x00", "\ud800", "x" * 5000),
        *("batch_size // 0 == 1", "9 ** 9 > 1", "not " * 999 + "a", "http://[", "http://h:99999"),
        *({"range": [0, 1e9, 1e-9]}, {"log2": [1, 2**60]}, {"choices": [1, 1]}, {1: 2}, (1, 2)),
    ]
)
ANY = st.recursive(
    ODD | st.none() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)


def paths(value, above=()):
    """The way to every part of a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for name, one in inner if isinstance(value, dict | list) else ():
        yield (*above, name)
        yield from paths(one, (*above, name)) if isinstance(one, dict | list) else ()


def altered(base, path, value):
    document = copy.deepcopy(base)
    place = document
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return document


def ids(plan):
    return [trial.trial_id for trial in planned(plan, target_factory(plan, VirtualClock()))]


@pytest.mark.parametrize("name", BASES)
def test_the_plans_that_are_altered_here_are_sound(name):
    assert ids(load_plan(BASES[name]))


@given(st.data())
@settings(max_examples=250, deadline=None)
def test_any_part_replaced_by_anything_is_refused_in_words_or_reads_back_the_same(data):
    base = BASES[data.draw(st.sampled_from(sorted(BASES)))]
    path = data.draw(st.sampled_from(list(paths(base))))
    try:
        plan = load_plan(altered(base, path, data.draw(ANY)))
        found = ids(plan)
    except WorkbenchError as error:
        assert str(error)
        return
    again = load_plan(json.loads(json.dumps(plan.document(), allow_nan=False)))
    assert again == plan
    assert ids(again) == found
