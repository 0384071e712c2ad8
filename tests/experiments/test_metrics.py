import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.gate_limits import Slo
from experiments.metric_specs import METRICS, Direction
from experiments.metrics import measure, needed_samples
from experiments.records import Chunk, ChunkKind, TelemetrySample
from experiments.statistics import with_intervals
from tests.experiments.records import failed, measurement, rechunked, request
from tests.experiments.strategies import any_requests, odd, times, waits


def values(requests, **fields):
    return {name: v.value for name, v in measure(measurement(requests, **fields)).items()}


def test_a_record_worked_by_hand():
    # Sent at 1; 2 tokens at 1.5, 3 at 2.1, 1 at 2.3: TTFT 0.5, E2E 1.3, TPOT 0.8 / 4.
    found = values([request([(1.5, 2), (2.1, 3), (2.3, 1)], sent_s=1.0)], window_s=(0.0, 4.0))
    assert found["ttft_s_mean"] == pytest.approx(0.5)
    assert found["e2e_s_mean"] == pytest.approx(1.3)
    assert found["tpot_s_mean"] == pytest.approx(0.2)
    assert found["icl_s_mean"] == pytest.approx((0.6 + 0.2) / 2)
    assert found["itl_s_mean"] == pytest.approx((3 * 0.2 + 1 * 0.2) / 4)
    assert found["tok_s_user"] == pytest.approx(5.0)
    assert found["output_tok_s"] == pytest.approx(6 / 4)
    assert found["total_tok_s"] == pytest.approx(16 / 4)
    assert found["request_s"] == pytest.approx(1 / 4)
    assert found["concurrency_mean"] == pytest.approx(1.3 / 4)
    assert found["concurrency_peak"] == 1
    assert found["tokens_per_chunk"] == pytest.approx(2.0)


@pytest.mark.parametrize("size", [1, 3, 8, 24])
def test_rechunking_changes_no_token_metric(size):
    one, other = (
        values([request(rechunked(0.1, 0.01, 24, s))], window_s=(0.0, 1.0)) for s in (1, size)
    )
    for name in ("ttft_s_mean", "tpot_s_mean", "itl_s_mean", "itl_s_p50", "e2e_s_mean"):
        assert one[name] == pytest.approx(other[name]), name
    for name in ("output_tok_s", "tok_s_user", "total_tok_s", "output_tokens"):
        assert one[name] == pytest.approx(other[name]), name


def test_token_gaps_add_up_to_the_decode_time():
    # sgl-project/sglang 12064: three tokens a chunk, a gap each third.
    record = request([(0.5, 1), (0.8, 3), (1.1, 3)])
    found = measure(measurement([record]))
    assert found["itl_s_mean"].n == 6
    assert found["itl_s_mean"].value * 6 == pytest.approx(0.6)


def test_first_chunk_gives_no_gap_sample():
    # vllm-project/vllm 7242
    found = measure(measurement([request([(5.0, 1), (5.1, 1)])]))
    assert found["icl_s_mean"].n == 1
    assert found["icl_s_mean"].value == pytest.approx(0.1)


def test_one_stall_shows_in_the_tail_of_chunk_gaps():
    # vllm-project/guidellm 1145: the mean of a request hides it.
    times = np.cumsum([0.01] * 500 + [2.0] * 8 + [0.01] * 90)
    found = values([request([(float(t), 1) for t in times])], window_s=(0.0, 100.0))
    assert found["icl_s_p99"] > 1.9
    assert found["icl_s_p50"] == pytest.approx(0.01)


def test_tokens_of_the_first_chunk_do_not_speed_up_the_user():
    # ai-dynamo/aiperf 1279: divisor 8, not 15.
    found = values([request([(1.0, 8), (1.8, 8)])])
    assert found["tpot_s_mean"] == pytest.approx(0.1)


def test_an_output_in_one_chunk_has_no_tpot():
    found = measure(measurement([request([(1.0, 16)])]))
    for name in ("tpot_s_mean", "tok_s_user", "itl_s_mean", "icl_s_p50"):
        assert found[name].value is None
        assert "one chunk" in found[name].reason
    assert found["ttft_s_mean"].value == 1.0


def test_no_time_between_chunks_is_missing_and_not_infinitely_fast():
    found = measure(measurement([request([(1.0, 1), (1.0, 4)])]))
    assert found["tok_s_user"].value is None
    assert "no time passed" in found["tok_s_user"].reason


def test_interactivity_is_harmonic_over_requests():
    slow, fast = request([(0.0, 1), (4.0, 4)]), request([(0.0, 1), (1.0, 4)], index=1)
    assert values([slow, fast])["tok_s_user"] == pytest.approx(8 / 5)  # not the mean of 1 and 4


def test_throughput_counts_chunks_inside_the_window_only():
    straddling = request([(0.5, 3), (1.5, 5), (2.5, 7)])
    found = values([straddling], window_s=(1.0, 2.0))
    assert found["output_tok_s"] == pytest.approx(5.0)
    assert found["request_s"] is None  # it ended outside
    assert found["output_tok_s_device"] == pytest.approx(5.0)


def test_nothing_seen_in_the_window_is_missing_and_not_zero():
    late = [request([(2.5, 1), (3.0, 4)], index=i) for i in range(4)]
    found = measure(measurement(late, window_s=(0.0, 1.0)), Slo(e2e_s=9))
    assert found["completed_requests"].value == 4
    for name in ("request_s", "output_tok_s", "output_tok_s_device", "total_tok_s", "goodput"):
        assert found[name].value is None, name
        assert "the window" in found[name].reason
    slow = measure(measurement(late), Slo(e2e_s=0.1))
    assert slow["goodput"].value == 0.0  # seen, and none met the limit


def test_throughput_per_device_divides_by_what_is_allocated():
    record = request([(1.0, 1), (2.0, 79)])
    assert values([record], devices=8)["output_tok_s_device"] == pytest.approx(1.0)
    unknown = measure(measurement([record], devices=None))["output_tok_s_device"]
    assert unknown.value is None
    assert "devices" in unknown.reason


def test_quantiles_wait_for_enough_samples():
    assert [needed_samples(p) for p in (0.5, 0.9, 0.99)] == [4, 20, 200]
    records = [request([(1.0 + i, 1)], index=i) for i in range(40)]
    found = measure(measurement(records, window_s=(0.0, 100.0)))
    assert found["ttft_s_p90"].value is not None
    assert found["ttft_s_p99"].value is None
    assert found["ttft_s_p99"].reason == "n=40 < 200"
    assert found["ttft_s_p99"].n == 40


def test_failures_stand_at_infinity_in_adjusted_quantiles():
    # ai-dynamo/aiperf 688, 825: no NaN from interpolating towards infinity.
    good = [request([(1.0, 1)], index=i) for i in range(19)]
    found = measure(measurement([*good, failed(index=19)]))
    assert found["e2e_s_p90_adj"].value == pytest.approx(1.0)
    worse = measure(measurement([*good[:17], *(failed(index=i) for i in range(17, 20))]))
    assert worse["e2e_s_p90_adj"].value is None
    assert "infinite" in worse["e2e_s_p90_adj"].reason


def test_nothing_succeeded_gives_reasons_and_no_zero_latency():
    found = measure(measurement([failed(index=i) for i in range(3)]))
    for name, spec in METRICS.items():
        if spec.unit in ("s", "tok/s", "tok/s/user", "tok/s/device", "req/s") and name not in (
            "duration_s",
            "achieved_request_s",
        ):
            assert found[name].value is None, name
            assert found[name].reason, name
    assert found["error_rate"].value == 1.0
    assert found["failed_requests"].value == 3


def test_nothing_sent_and_an_empty_window_do_not_divide_by_zero():
    for window in ((0.0, 0.0), (0.0, 1.0)):
        found = measure(measurement([], window_s=window))
        assert found["output_tok_s"].value is None
        assert found["error_rate"].value is None
    found = measure(measurement([request([(1.0, 1)])], window_s=(1.0, 1.0)))
    assert found["output_tok_s"].reason == "the window is empty"


def test_warm_up_is_part_of_no_metric():
    warm = request([(0.5, 100)], warm_up=True, index=1)
    record = request([(1.0, 1), (2.0, 1)])
    assert values([warm, record]) == values([record])


def test_cancelled_requests_are_neither_failures_nor_successes():
    gone = request([(1.0, 1)], finish_reason="abort", index=1)
    found = values([request([(1.0, 1), (2.0, 1)]), gone])
    assert (found["completed_requests"], found["failed_requests"]) == (1, 0)
    assert found["cancelled_requests"] == 1


def test_acceptance_is_weighted_by_steps_and_counts_the_bonus_token():
    one = request(
        [(1.0, 1), (2.0, 9)],
        proposed_tokens=15,
        accepted_tokens=6,
        verify_steps=3,
        emitted_tokens=9,
        proposed_by_position=(3, 3, 3, 3, 3),
        accepted_by_position=(3, 2, 1),
        reached_by_position=(3, 3, 2, 1),
    )
    other = request(
        [(1.0, 1), (2.0, 2)],
        index=1,
        proposed_tokens=5,
        verify_steps=1,
        emitted_tokens=1,
        proposed_by_position=(1, 1, 1, 1, 1),
        reached_by_position=(1,),
    )
    found = values([one, other])
    assert found["acceptance_length_request"] == pytest.approx((9 / 3 + 1) / 2)
    assert [found[f"acceptance_c{i}"] for i in range(1, 6)] == [3 / 4, 2 / 3, 1 / 2, 0.0, None]
    assert found["acceptance_length"] == pytest.approx((6 + 4) / 4)
    assert found["acceptance_rate"] == pytest.approx(6 / 20)
    assert found["verify_efficiency"] == pytest.approx((6 + 4) / (20 + 4))
    assert [found[f"acceptance_p{i}"] for i in range(1, 6)] == [0.75, 0.5, 0.25, 0.0, 0.0]


def test_a_step_that_a_stop_token_cuts_emits_no_bonus_token():
    cut = request(
        [(1.0, 1), (2.0, 6), (3.0, 2)],
        proposed_tokens=10,
        accepted_tokens=7,
        verify_steps=2,
        emitted_tokens=8,
    )
    found = values([cut])
    assert found["acceptance_length"] == pytest.approx(8 / 2)
    assert found["verify_efficiency"] == pytest.approx(8 / 12)


def test_goodput_counts_requests_within_every_limit():
    fast = request([(0.2, 1), (1.2, 10)])  # TTFT 0.2, TPOT 0.1, E2E 1.2
    slow = request([(0.9, 1), (1.9, 10)], index=1)
    one_token = request([(0.2, 1)], index=2)
    one_chunk = request([(0.2, 8)], index=3)
    late = request([(0.2, 1), (11.0, 200)], index=4)  # within the limits, outside the window
    requests = [fast, slow, one_token, one_chunk, late, failed(index=5)]
    found = measure(measurement(requests), Slo(ttft_s=0.5, tpot_s=0.1))
    assert found["goodput"].value == pytest.approx(2 / 10)
    assert found["goodput_fraction"].value == pytest.approx(3 / 6)
    assert measure(measurement(requests), Slo(e2e_s=1.5))["goodput"].value == pytest.approx(0.3)
    assert measure(measurement(requests))["goodput"].reason == "the plan states no slo"


def test_tpot_as_other_tools_divide_it():
    found = values([request([(1.0, 8), (1.8, 8)])])
    assert found["tpot_compat_s_mean"] == pytest.approx(0.8 / 15)
    assert values([request([(1.0, 1)])])["tpot_compat_s_mean"] is None


def test_the_request_rate_is_held_against_the_schedule():
    sent = [request([(i + 0.5, 1)], sent_s=float(i), index=i) for i in range(6)]
    assert values(sent, due_requests=8)["request_rate_ratio"] == pytest.approx(6 / 8)
    closed = measure(measurement(sent))["request_rate_ratio"]
    assert closed.reason == "a closed loop has no schedule"


def test_without_drafts_acceptance_is_missing_and_not_zero():
    found = measure(measurement([request([(1.0, 1), (2.0, 1)])]))
    assert found["acceptance_length"].value is None
    assert found["acceptance_length"].reason == "no draft was verified"
    assert found["acceptance_p1"].value is None


def test_littles_law_is_one_for_a_full_closed_loop():
    records = [
        request([(s + 0.5, 1), (s + 1.0, 1)], sent_s=s, index=10 * slot + i)
        for slot in range(4)
        for i, s in enumerate(range(10))
    ]
    found = values(records)
    assert found["littles_law"] == pytest.approx(1.0)
    assert found["concurrency_mean"] == pytest.approx(4.0)
    assert found["concurrency_peak"] == 4  # a slot handed on at one instant is one request


def test_latency_from_schedule_keeps_the_wait_in_the_clients_queue():
    # vllm-project/vllm 54101
    late = request([(3.0, 1), (4.0, 1)], sent_s=2.5, intended_s=0.0)
    found = values([late])
    assert found["ttft_s_mean"] == pytest.approx(0.5)
    assert found["ttft_sched_s_mean"] == pytest.approx(3.0)
    assert found["e2e_sched_s_mean"] == pytest.approx(4.0)


def test_energy_spans_exactly_the_window_of_the_tokens():
    # 100 J a second; read at 0.9, 1.4, ..., while the window is 1 to 3.
    telemetry = tuple(
        TelemetrySample(time_s=t, device_index=3, device_energy_j=100 * t)
        for t in np.arange(0.9, 3.6, 0.5)
    )
    record = request([(0.95, 7), (1.5, 10), (3.0, 10), (3.2, 5)])
    found = values([record], telemetry=telemetry, window_s=(1.0, 3.0))
    assert found["energy_j_token"] == pytest.approx(200 / 20)
    late = measure(measurement([record], telemetry=telemetry[1:], window_s=(1.0, 3.0)))
    assert "both sides of the window" in late["energy_j_token"].reason
    two = measure(measurement([record], telemetry=telemetry, window_s=(1.0, 3.0), devices=2))
    assert "1 devices were read and 2 are allocated" in two["energy_j_token"].reason


def test_energy_is_the_growth_of_all_counters_per_token():
    telemetry = tuple(
        TelemetrySample(time_s=t, device_index=d, device_energy_j=100.0 * d + 10 * t)
        for t in (0.0, 5.0, 10.0)
        for d in (0, 1)
    )
    record = request([(1.0, 1), (2.0, 99)])
    found = values([record], telemetry=telemetry, devices=2)
    assert found["energy_j_token"] == pytest.approx(2 * 100 / 100)
    reset = (*telemetry[:2], TelemetrySample(time_s=9, device_index=0, device_energy_j=-5.0))
    missing = measure(measurement([record], telemetry=reset, devices=2))["energy_j_token"]
    assert missing.value is None
    none = measure(measurement([record]))["energy_j_token"]
    assert none.value is None
    assert "no energy counter" in none.reason


def test_every_metric_says_what_it_means():
    for name, spec in METRICS.items():
        assert spec.name == name
        assert spec.label
        assert spec.definition
        assert isinstance(spec.direction, Direction)
    assert len({spec.label for spec in METRICS.values()}) == len(METRICS)
    assert list(measure(measurement([]))) == list(METRICS)


def test_every_rate_of_tokens_names_its_tokens():
    # modelscope/evalscope 499: a throughput of output tokens, where the total was wanted.
    heads = {"output": "Output", "total": "Total", "prefill": "Prefill", "tok": "Interactivity"}
    rates = [spec for spec in METRICS.values() if spec.unit.split("/")[:2] == ["tok", "s"]]
    assert {spec.name.partition("_")[0] for spec in rates} == set(heads)
    for spec in rates:
        assert spec.label.startswith(heads[spec.name.partition("_")[0]])


def test_a_stall_of_one_token_in_a_burst_counts_as_often_as_its_tokens():
    # tenstorrent/tt-inference-server 4681: the median gap is nearly nothing, the mean is not.
    bursts = [(k * 0.1 + j * 1e-5, 1) for k in range(1, 30) for j in range(16)]
    found = values([request(bursts)])
    assert found["itl_s_mean"] > 5 * found["itl_s_p50"]
    assert found["tokens_per_chunk"] == 1.0
    bundled = values([request([(k * 0.1, 16) for k in range(1, 30)])])
    assert bundled["itl_s_p50"] == pytest.approx(0.1 / 16)
    assert bundled["itl_s_mean"] == pytest.approx(bundled["itl_s_p50"])


def test_a_single_request_gives_rates_and_not_totals():
    # modelscope/evalscope 1076
    found = values([request([(0.5, 1), (4.0, 19)])], window_s=(0.0, 4.0))
    assert found["output_tok_s"] == pytest.approx(20 / 4)
    assert found["request_s"] == pytest.approx(1 / 4)


def test_reasoning_counts_for_ttft_and_the_first_word_of_the_answer_for_ttfo():
    # kubernetes-sigs/inference-perf 559
    kinds = (ChunkKind.REASONING, ChunkKind.REASONING, ChunkKind.CONTENT)
    thought = tuple(
        Chunk(time_s=t, tokens=1, kind=kind) for t, kind in zip((1, 2, 5), kinds, strict=True)
    )
    both = dataclasses.replace(request([(1.0, 1)]), chunks=thought)
    found = values([both])
    assert found["ttft_s_mean"] == pytest.approx(1.0)
    assert found["ttfo_s_mean"] == pytest.approx(5.0)
    only = measure(measurement([dataclasses.replace(both, chunks=thought[:2])]))["ttfo_s_mean"]
    assert only.reason == "every token was reasoning"


def test_what_was_issued_is_accounted_for_one_by_one():
    # aws-samples/sample-apj-sup-sa 181
    vanished = request([], index=3, finish_reason=None, ended_s=None)
    gone = request([(1.0, 1)], finish_reason="abort", index=2)
    found = values([request([(1.0, 1)]), failed(index=1), gone, vanished])
    kinds = ("issued", "completed", "failed", "cancelled", "lost")
    assert [found[f"{kind}_requests"] for kind in kinds] == [4, 1, 1, 1, 1]
    assert found["error_rate"] == 0.5  # nobody answered the lost one either


def test_distinct_prompts_are_counted():
    # aws-samples/sample-apj-sup-sa 181: 49 distinct prompts for 40,000 requests
    hashed = [request([(1.0, 1)], index=i, prompt_hash=f"{i % 3}") for i in range(9)]
    assert values(hashed)["distinct_prompts"] == 3
    assert measure(measurement([request([(1.0, 1)])]))["distinct_prompts"].value is None


def test_several_windows_are_added_up_and_what_lies_between_them_is_left_out():
    found = values(
        [request([(1.5, 3), (5.0, 100), (8.5, 5)], sent_s=1.0)],
        window_s=(1.0, 9.0),
        windows_s=((1.0, 2.0), (8.0, 9.0)),
    )
    assert found["output_tok_s"] == pytest.approx(8 / 2)
    assert found["duration_s"] == pytest.approx(2.0)
    assert found["concurrency_mean"] == pytest.approx((1.0 + 0.5) / 2)


def test_tokens_spread_over_their_gap_are_cut_by_the_edge_of_the_window():
    record = request([(0.5, 1), (1.5, 10)])
    at_arrival, spread = (
        values([record], window_s=(0.0, 1.0), spread_tokens=flag)["output_tok_s"]
        for flag in (False, True)
    )
    assert at_arrival == pytest.approx(1.0)
    assert spread == pytest.approx(1 + 10 / 2)


def assert_honest(found):
    for name, metric in found.items():
        assert (metric.value is None) == (metric.reason is not None), name
        for number in (metric.value, metric.low, metric.high):
            assert number is None or math.isfinite(number), name


@given(any_requests(instants=times | odd, gaps=waits | odd), st.booleans())
def test_no_instant_however_odd_gives_a_crash_a_warning_or_a_number_that_is_none(requests, spread):
    # Warnings of numpy are errors in these tests.
    m = measurement(requests, window_s=(0.0, 10.0), spread_tokens=spread)
    assert_honest(with_intervals(measure(m), m, draws=20, seed=0))


@given(st.lists(st.integers(1, 4), min_size=2, max_size=12), st.data())
def test_no_bundling_of_tokens_changes_what_is_counted_in_tokens(sizes, data):
    # kubernetes-sigs/inference-perf 410: a server that bundles sends each bundle when it is full.
    total = sum(sizes)
    one_by_one = [(0.5 + 0.01 * k, 1) for k in range(total + 1)]
    ends = np.cumsum(sizes)
    bundled = [(0.5, 1), *((0.5 + 0.01 * int(e), n) for e, n in zip(ends, sizes, strict=True))]
    sent = data.draw(st.floats(0, 0.4))
    one, other = (
        values([request(chunks, sent_s=sent)], window_s=(0.0, 2.0))
        for chunks in (one_by_one, bundled)
    )
    kept = ("ttft_s_mean", "tpot_s_mean", "itl_s_mean", "e2e_s_mean", "output_tok_s", "tok_s_user")
    for name in kept:
        assert one[name] == pytest.approx(other[name]), name
    assert one["itl_s_p50"] is None or one["itl_s_p50"] == pytest.approx(other["itl_s_p50"])


@given(any_requests(), st.tuples(times, times).map(sorted))
def test_metrics_are_finite_or_missing_with_a_reason_and_quantiles_rise(requests, window):
    found = measure(measurement(requests, window_s=tuple(window)))
    assert_honest(found)
    for family in ("ttft_s", "tpot_s", "itl_s", "icl_s", "e2e_s"):
        ladder = [found[f"{family}_{q}"].value for q in ("p50", "p90", "p99")]
        shown = [value for value in ladder if value is not None]
        assert shown == sorted(shown)
    kinds = ("completed", "failed", "cancelled", "lost")
    assert sum(found[f"{kind}_requests"].value for kind in kinds) == len(requests)
    assert found["issued_requests"].value == len(requests)
