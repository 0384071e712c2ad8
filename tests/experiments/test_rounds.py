"""Loads in rounds: a full batch that decodes, and prefills by themselves."""

from itertools import pairwise

import numpy as np
import pytest

from experiments.errors import PlanError, WorkloadError
from experiments.load_metrics import over_rounds
from experiments.load_specs import BatchLoad
from experiments.measurement import Measurement
from experiments.metrics import measure
from experiments.records import TelemetrySample, TrialState
from experiments.windows import full_batch_window, in_rounds, most_requests, prefill_window
from tests.experiments.records import request
from tests.fakes.loads import asked, measured, trials, values

SLOW = {"name": "quick", "measured_s": 2.0, "limit_s": 30.0}


def test_a_batch_is_measured_while_it_is_full():
    record = measured(
        load={"kind": "batch", "batch_size": 4},
        simulation={"ttft_s": 0.4, "tpot_s": 0.01, "tokens_per_chunk": 1},
        protocol=SLOW,
    )
    found = values(record)
    assert record.state is TrialState.OK, record.reason
    assert found["output_tok_s"] == pytest.approx(4 / 0.01, rel=1e-6)  # prefill lies outside
    assert found["concurrency_mean"] == pytest.approx(4.0, rel=1e-6)
    assert found["decode_step_s"] == pytest.approx(0.01, rel=1e-6)
    assert found["rounds"] >= 3
    assert found["rounds_left_out"] == 0
    assert found["duration_s"] == pytest.approx(found["rounds"] * 24 * 0.01, rel=1e-6)


@pytest.mark.parametrize("size", [1, 3, 8])
def test_throughput_of_a_full_batch_does_not_depend_on_the_chunks(size):
    record = measured(
        load={"kind": "batch", "batch_size": 4},
        simulation={"ttft_s": 0.1, "tpot_s": 0.01, "tokens_per_chunk": size},
        protocol=SLOW,
    )
    assert values(record)["output_tok_s"] == pytest.approx(400, rel=1e-6)


def test_rounds_never_overlap_and_are_whole():
    record = measured(load={"kind": "batch", "batch_size": 3}, protocol=SLOW)
    sent = asked(record)
    assert len(sent) % 3 == 0
    rounds = [sent[at : at + 3] for at in range(0, len(sent), 3)]
    for before, after in pairwise(rounds):
        assert max(r.ended_s for r in before) <= min(r.sent_s for r in after)


def test_what_only_whole_requests_have_is_missing_with_its_reason():
    record = measured(load={"kind": "batch", "batch_size": 2}, protocol=SLOW, slo={"e2e_s": 5.0})
    for name in ("total_tok_s", "request_s", "achieved_request_s", "goodput", "littles_law"):
        assert record.metrics[name].value is None
        assert "full-batch window" in record.metrics[name].reason
    assert values(record)["goodput_fraction"] == 1.0
    watts = tuple(
        TelemetrySample(time_s=at, device_index=0, device_power_w=100.0) for at in (0.0, 0.5, 1.0)
    )
    pair = [request([(0.2, 1), (0.8, 4)]), request([(0.3, 1), (0.9, 4)], index=1)]
    m = Measurement(requests=tuple(pair), window_s=(0.0, 1.0), devices=1, telemetry=watts)
    found = measure(in_rounds(m, BatchLoad(kind="batch", batch_size=2)))
    assert found["energy_j"].value == pytest.approx(50.0)
    for name in ("energy_j_request", "energy_j_total_token"):
        assert "full-batch window" in (found[name].reason or "")
    assert "prefill_step" in record.metrics["prefill_tok_s"].reason


def test_the_edges_of_a_full_batch_window_cut_the_chunks_they_fall_into():
    early = request([(1.0, 1), (3.0, 4), (5.0, 4)], index=0)
    late = request([(2.0, 1), (4.0, 2), (6.0, 2)], index=1)
    assert full_batch_window([early, late]) == (2.0, 5.0)
    whole = Measurement(requests=(early, late), window_s=(0.0, 9.0), devices=1)
    found = in_rounds(whole, BatchLoad(kind="batch", batch_size=2))
    assert found.window_length_s == 3.0
    assert found.tokens_inside(early) == pytest.approx(2 + 4)  # half of the chunk at 3 s
    assert found.tokens_inside(late) == pytest.approx(2 + 1)  # its first token was made before


def test_rounds_that_failed_or_were_never_full_are_left_out_and_counted():
    good = [request([(1.0, 1), (2.0, 3)], index=i) for i in (0, 1)]
    failed = [request([(3.0, 1), (4.0, 3)], index=2), request([], index=3, error="boom")]
    apart = [request([(5.0, 1), (6.0, 3)], index=4), request([(7.0, 1), (8.0, 3)], index=5)]
    cut = [request([(9.0, 1), (9.5, 3)], index=6)]
    whole = Measurement(requests=(*good, *failed, *apart, *cut), window_s=(0.0, 10.0), devices=1)
    found = in_rounds(whole, BatchLoad(kind="batch", batch_size=2))
    assert found.windows_s == ((1.0, 2.0),)
    assert (found.tally.rounds.measured, found.tally.rounds.left_out) == (1, 3)


def test_no_window_at_all_is_an_empty_one_and_gives_no_number():
    record = measured(
        workloads=[{"name": "s", "kind": "synthetic", "prompt_tokens": 8, "output_tokens": 1}],
        load={"kind": "batch", "batch_size": 2},
        protocol=SLOW,
    )
    assert record.state is TrialState.INVALID
    assert "rounds could be measured; in each" in record.reason
    assert record.metrics["output_tok_s"].value is None
    assert record.metrics["decode_step_s"].reason == "no round has a window"
    assert values(record)["rounds"] == 0
    assert values(record)["rounds_left_out"] > 0


def test_a_prefill_step_measures_prompts_until_their_last_first_token():
    record = measured(
        load={"kind": "prefill_step", "token_budget": 1000, "prompt_tokens": 300},
        simulation={"ttft_s": 0.25},
        protocol=SLOW,
    )
    found = values(record)
    assert record.state is TrialState.OK, record.reason
    assert {r.prompt_tokens for r in asked(record)} == {300}
    assert {r.output_tokens for r in asked(record)} == {1}
    assert found["prefill_tok_s"] == pytest.approx(900 / 0.25, rel=1e-3)
    assert found["total_tok_s"] == pytest.approx(903 / 0.25, rel=1e-3)
    assert record.point.workload["prompt_tokens"] == 300
    assert record.point.workload["output_tokens"] == 1
    one = [request([(0.4, 1)], sent_s=0.1), request([(0.3, 1)], sent_s=0.2, index=1)]
    assert prefill_window(one) == (0.1, 0.4)


def test_decode_at_a_fixed_batch_fixes_the_lengths():
    record = measured(
        load={"kind": "decode_batch", "batch_size": 4, "prompt_tokens": 32, "output_tokens": 40},
        simulation={"tpot_s": 0.03, "accepted_drafts": 2},
        engine={"draft_length": 5},
        protocol=SLOW,
    )
    found = values(record)
    assert {(r.prompt_tokens, r.output_tokens) for r in asked(record)} == {(32, 40)}
    assert found["decode_step_s"] == pytest.approx(0.03, rel=1e-3)
    assert found["output_tok_s"] == pytest.approx(4 * 3 / 0.03, rel=1e-3)


def test_what_rounds_give_has_an_interval_that_covers_the_truth():
    stream = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        length = stream.uniform(0.5, 1.5, size=8)
        found = over_rounds(50.0 * length + stream.normal(0, 3, size=8), length, 8)
        assert found.low < found.value < found.high
        covered += found.low <= 50.0 <= found.high
    assert 0.92 <= covered / 400 <= 0.98
    assert over_rounds([1.0, 2.0], [1.0, 2.0], 2).low is None
    assert over_rounds([], [], 0).reason == "no round has a window"
    steady = over_rounds([2.0, 4.0, 2.0], [1.0, 2.0, 1.0], 3)
    assert (steady.low, steady.value, steady.high) == (2.0, 2.0, 2.0)


def test_the_most_requests_are_whole_rounds():
    load = BatchLoad(kind="batch", batch_size=3)
    assert most_requests(load, 10) == 9
    assert most_requests(load, 2) == 3


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"load": {"kind": "batch", "batch_size": 65}, "engine": {"max_num_seqs": 64}},
            "65 requests at once on an engine that takes 64.*",
        ),
        (
            {"load": {"kind": "prefill_step", "token_budget": 4096, "prompt_tokens": 64}},
            "4096 tokens in a step on an engine that takes 2048",
        ),
        (
            {"load": {"kind": "prefill_step", "token_budget": 10**9, "prompt_tokens": 1}},
            "1000000000 prompts, more than 100000",
        ),
        (
            {"load": {"kind": "prefill_step", "token_budget": 9, "prompt_tokens": 10}},
            "token_budget 9 holds no prompt of 10",
        ),
        (
            {
                "load": {"kind": "decode_batch", "batch_size": 2},
                "workloads": [{"name": "t", "kind": "trace", "path": "sample:azure"}],
            },
            "fixes the lengths itself, and workload t has its own",
        ),
        (
            {
                "load": {
                    "kind": "decode_batch",
                    "batch_size": 2,
                    "prompt_tokens": 4000,
                    "output_tokens": 400,
                }
            },
            "4400 tokens and the context holds 4096",
        ),
    ],
)
def test_a_round_that_the_engine_cannot_take_is_refused_before_it_runs(fields, said):
    with pytest.raises((PlanError, WorkloadError), match=said) as caught:
        trials(**fields)
    assert caught.value.exit_code == 2


def test_replicas_take_a_round_together():
    load = {"kind": "prefill_step", "token_budget": 4096, "prompt_tokens": 64}
    (trial,) = trials(load=load, engine={"data_parallel_size": 2})
    assert trial.batch_size == 64
    assert [
        t.batch_size
        for t in trials(
            load={"kind": "batch", "batch_size": 1},
            axes=[{"product": {"batch_size": [1, 2, 4]}}],
            order="as_written",
        )
    ] == [1, 2, 4]
