"""The null model, and schedules in simulation."""

import random

import pytest

from engine.accelerator.null import RepeatRecorder
from engine.accelerator.roofline import Roofline, StepCost
from engine.config import EngineConfig
from engine.models.null import NullSource, StepMeter
from engine.models.protocol import ModelFacts
from engine.request import Request, SamplingParams
from engine.simulation import simulate
from tests.fakes.recorder import FakeRecorder

FACTS = ModelFacts(
    vocab_size=64,
    max_positions=512,
    eos_token_id=1,
    window=8,
    draft_block=4,
    ngram=1,
    can_truncate=False,
)
CHIP = Roofline(flops_per_s=1e12, bytes_per_s=1e11, launch_s=1e-4)
COST = StepCost(weight_bytes=1e8, flops_per_row=2e8, context_bytes=1e3)


def source(**values):
    return NullSource(
        model_facts=FACTS, meter=StepMeter(), **{"chip": CHIP, "cost": COST, **values}
    )


def config(**values):
    return EngineConfig(
        **{"model": "null", "max_num_seqs": 8, "draft_length": 0, "overlap": True, **values}
    )


def ask(name, prompt, **params):
    sampling = SamplingParams(**{"temperature": 0.0, "ignore_eos": True, **params})
    return Request(request_id=name, prompt_token_ids=tuple(prompt), sampling=sampling)


def run(engine):
    said = {}
    while engine.has_unfinished():
        for output in engine.step():
            said.setdefault(output.request_id, []).extend(output.token_ids)
        engine.check_integrity()
    return said


def requests(count):
    draw = random.Random(5)
    return [
        ask(str(i), draw.choices(range(64), k=draw.randint(1, 60)), max_tokens=draw.randint(1, 30))
        for i in range(count)
    ]


def test_a_text_is_that_of_the_request_alone_however_it_is_scheduled():
    alone = {}
    for request in requests(12):
        engine, _ = simulate(config(max_num_seqs=1), source())
        engine.add_request(request)
        alone |= run(engine)
    busy = config(
        draft_length=4,
        max_num_batched_tokens=24,
        cache_tokens=192,
        block_tokens=16,
        admission="greedy",
        max_model_len=100,
    )
    engine, _ = simulate(busy, source(acceptance=0.6))
    for request in requests(12):
        engine.add_request(request)
    assert run(engine) == alone
    assert engine.stats().preemptions > 0
    assert engine.stats().accepted_tokens > 0


@pytest.mark.parametrize("draft_length", [0, 3])
def test_steps_of_the_null_model_can_be_recorded(draft_length):
    said = []
    for recorder in (None, FakeRecorder(), RepeatRecorder()):
        asked = config(draft_length=draft_length, cache_tokens=512, block_tokens=16)
        engine, _ = simulate(asked, source(acceptance=0.6), recorder=recorder)
        for request in requests(6):
            engine.add_request(request)
        said.append(run(engine))
        assert bool(engine.stats().replayed_steps) == (recorder is not None)
    assert said[1] == said[0]
    assert said[2] == said[0]


def test_drafts_stand_as_often_as_the_simulation_says():
    engine, _ = simulate(config(draft_length=1), source(acceptance=0.7))
    for i in range(8):
        engine.add_request(ask(str(i), [i], max_tokens=400))
    run(engine)
    stats = engine.stats()
    assert stats.accepted_tokens / stats.proposed_tokens == pytest.approx(0.7, abs=0.04)


def test_a_decode_step_takes_the_time_of_the_roofline():
    engine, device = simulate(config(), source())
    engine.add_request(ask("a", [3], max_tokens=2))
    run(engine)
    prefill_s = 1e8 / 1e11 + 1e-4  # bytes bound: 2e8 flops take 0.2 ms, the weights 1 ms
    decode_s = (1e8 + 1e3) / 1e11 + 1e-4
    assert device.busy_s == pytest.approx(prefill_s + decode_s)
    assert device.clock.now_ns == round(device.busy_s * 1e9)


def test_a_long_prefill_is_bound_by_its_flops():
    engine, device = simulate(config(), source())
    engine.add_request(ask("a", [3] * 100, max_tokens=1))
    run(engine)
    assert device.busy_s == pytest.approx(100 * 2e8 / 1e12 + 1e-4)


def test_routed_weights_are_read_as_far_as_rows_touch_them():
    cost = StepCost(weight_bytes=10, flops_per_row=0, routed_weight_bytes=100, routed_share=0.5)
    assert cost.moved_bytes([1], [0]) == 10 + 50
    assert cost.moved_bytes([1, 1], [0, 0]) == 10 + 75


@pytest.mark.parametrize(("overlap", "idle"), [(True, False), (False, True)])
def test_overlap_keeps_the_device_busy_between_decode_steps(overlap, idle):
    """The host takes 20 us a look at the clock, the device 1.1 ms a step."""
    engine, device = simulate(config(overlap=overlap), source(), host_tick_ns=20_000)
    for i in range(4):
        engine.add_request(ask(str(i), [i], max_tokens=50))
    run(engine)
    assert engine.stats().steps == 50
    assert (device.idle_s > 0) == idle
    assert engine.stats().wasted_steps == 0
