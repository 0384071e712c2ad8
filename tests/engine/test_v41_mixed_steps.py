"""V4.1: chunks of prompts beside sequences that decode with drafts, recorded and replayed."""

from dataclasses import replace

import pytest
import torch

from engine.config import EngineConfig
from engine.request import Request, SamplingParams
from tests.engine.test_v41_property import EXACT, alone
from tests.fakes.in_place_ops import IN_PLACE
from tests.fakes.late_device import late_engine
from tests.fakes.models import VOCAB
from tests.fakes.null_device import erratic_engine
from tests.fakes.recorder import FakeRecorder
from tests.fakes.serving import run, text
from tests.fakes.small_source import SmallSource

SOURCE = SmallSource(ops=IN_PLACE)  # window 5, an owner of ratio 2 in each half
KEEP = SOURCE.window + 6
PLAIN = replace(SOURCE, ops=SmallSource().ops)


def config_of(**values):
    defaults = {"max_num_seqs": 8, "block_tokens": 4, "cache_tokens": 800}
    return EngineConfig(**{**EXACT, "replay_keep_tokens": KEEP, **defaults, **values})


def asked(count):
    """Prompts of 2, 5, ... tokens, every other one drawn."""
    return [
        Request(
            request_id=str(n),
            prompt_token_ids=tuple((7 * n + 3 * i) % (VOCAB - 1) for i in range(2 + 3 * n)),
            sampling=SamplingParams(
                temperature=0.8 * (n % 2), max_tokens=9, ignore_eos=True, seq_seed=n
            ),
        )
        for n in range(count)
    ]


def serve_one_a_step(target, requests):
    outputs = []
    for request in requests:
        target.add_request(request)
        outputs += target.step()
    return outputs + run(target)


def assert_said(outputs, requests, mode):
    keep = 10**6 if mode == "off" else KEEP
    for request in requests:
        expected = alone(PLAIN, request.prompt_token_ids, request.sampling, keep)
        assert text(outputs, request.request_id) == expected


def mixed_shapes(target):
    programs = target._runner._recorded._graphs._programs
    return {key.shape for key, p in programs.items() if p.graph is not None and key.shape.chunks}


@pytest.mark.parametrize("mode", ["compact", "mask", "off"])
@pytest.mark.parametrize("draft_length", [0, 3])
def test_prompts_are_replayed_beside_drafts_and_say_what_each_says_alone(draft_length, mode):
    """Longer than the window, than its ring, and than the rows that the decoder half keeps."""
    config = config_of(draft_length=draft_length, replay_mode=mode)
    target = erratic_engine(config, SOURCE, 1, FakeRecorder())
    requests = asked(8)
    assert_said(serve_one_a_step(target, requests), requests, mode)
    rows = {(shape.sequences, shape.rows) for shape in mixed_shapes(target)}
    assert (8, 1 + draft_length) in rows
    assert target.stats().replayed_steps > 8


def test_a_chunk_that_the_decoder_half_need_not_run_is_run_as_it_is():
    config = config_of(draft_length=0, max_num_batched_tokens=16, prefill_chunk_tokens=8)
    target = erratic_engine(config, SOURCE, 1, FakeRecorder())
    for number in range(4):  # two chunks before the rows that are kept, then two more
        (request,) = asked(11)[10:]
        target.add_request(replace(request, request_id=str(number)))
        run(target)
    assert target.stats().decoder_rows_skipped == 4 * 16
    assert [shape.sequences for shape in mixed_shapes(target)] == [0]


def test_chunks_of_long_prompts_are_replayed_and_padding_is_not_noticed():
    """Several chunks a step, some of which end between the two tokens of a global row."""
    config = config_of(draft_length=2, max_num_batched_tokens=40, prefill_chunk_tokens=7)
    target = erratic_engine(config, SOURCE, 1, FakeRecorder())
    caches = target._runner._caches
    for name, tensor in caches.device.tensors.items():  # whatever padding reads is no number
        is_paged = "global" in name or "index" in name
        parts = caches.device.blocks if is_paged else caches.device.slots
        tensor[-(len(tensor) // parts) :] = torch.nan
    requests = asked(9)
    assert_said(serve_one_a_step(target, requests), requests, "compact")
    assert {shape.chunks for shape in mixed_shapes(target)} >= {2, 5}


def test_steps_with_chunks_that_are_put_off_read_nothing_that_has_changed_since():
    target, device = late_engine(config_of(draft_length=2, max_num_seqs=4), SOURCE, 1)
    requests = asked(7)
    assert_said(serve_one_a_step(target, requests), requests, "compact")
    assert device.late > 5
    assert mixed_shapes(target)
