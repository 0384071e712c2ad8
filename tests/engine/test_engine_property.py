"""Whatever the schedule, every request gets the text it would get alone.

The engine runs on the null accelerator, so it plans, and frees, before it knows what the step
in flight finds; the hash model shows every row that is stale, foreign or missing.
"""

import os
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import EngineConfig
from engine.request import FinishReason, Request, SamplingParams
from tests.fakes.hash_model import FACTS, HashSource
from tests.fakes.null_device import erratic_engine
from tests.fakes.sequential import expected_text

FULL = bool(os.environ.get("WORKBENCH_TEST_FULL"))

params = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.0, 0.7]),
    top_k=st.sampled_from([None, 1, 5]),
    top_p=st.sampled_from([1.0, 0.8]),
    max_tokens=st.integers(1, 24),
    min_tokens=st.sampled_from([0, 0, 1]),
    stop_token_ids=st.sampled_from([(), (3,), (3, 9)]),
    ignore_eos=st.booleans(),
    seq_seed=st.integers(0, 5),
    prompt_logprobs=st.sampled_from([False, False, False, True]),
)


@dataclass(frozen=True)
class Ask:
    prompt: tuple[int, ...]
    params: SamplingParams
    arrives: int  # step before which it is added
    aborted: int | None  # step before which it is aborted
    priority: int
    timeout_s: float | None


rarely = st.one_of(st.none(), st.none(), st.none(), st.integers(0, 20))
asks = st.lists(
    st.builds(
        Ask,
        prompt=st.lists(st.integers(0, FACTS.vocab_size - 1), min_size=1, max_size=20).map(tuple),
        params=params,
        arrives=st.integers(0, 8),
        aborted=rarely,
        priority=st.sampled_from([0, 0, 0, -1, 1]),
        timeout_s=st.one_of(st.none(), st.none(), st.none(), st.floats(0.01, 0.3)),
    ),
    max_size=7,
)

configs = st.builds(
    EngineConfig,
    model=st.just("hash"),
    dtype=st.just("float64"),
    draft_length=st.integers(0, 3),
    replay_mode=st.sampled_from(["off", "mask", "compact", "compact"]),
    replay_keep_tokens=st.integers(8, 11),
    max_num_seqs=st.integers(1, 5),
    max_num_batched_tokens=st.integers(1, 24),
    prefill_chunk_tokens=st.sampled_from([None, None, 1]),
    block_tokens=st.sampled_from([2, 4, 8]),
    cache_tokens=st.sampled_from([24, 32, 48, 96, 512]),
    max_model_len=st.sampled_from([33, 64]),
    admission=st.sampled_from(["greedy", "greedy", "predicted"]),
    swap_tokens=st.sampled_from([0, 16, 40, 200]),
    overlap=st.sampled_from([True, True, True, False]),
)


def drive(engine, asked):
    """Run to the end, adding and aborting at the asked steps; outputs by request."""
    heard = {str(i): [] for i in range(len(asked))}
    step = 0
    while step <= 20 or engine.has_unfinished():
        for i, ask in enumerate(asked):
            if ask.arrives == step:
                engine.add_request(
                    Request(
                        request_id=str(i),
                        prompt_token_ids=ask.prompt,
                        sampling=ask.params,
                        priority=ask.priority,
                        timeout_s=ask.timeout_s,
                    )
                )
            if ask.aborted == step:
                engine.abort(str(i))
        for output in engine.step():
            heard[output.request_id].append(output)
        engine.check_integrity()
        step += 1
        assert step < 1500, "the engine does not get done"
    return heard


def check(config, asked, delays):
    engine = erratic_engine(config, HashSource(), delays)
    longest = engine.limits.longest_sequence
    heard = drive(engine, asked)
    for i, ask in enumerate(asked):
        truncated = config.replay_mode != "off" and not ask.params.prompt_logprobs
        text, is_stopped = expected_text(
            ask.prompt,
            ask.params,
            seed=ask.params.seq_seed,
            keep=config.replay_keep_tokens if truncated else None,
            longest=longest,
        )
        outputs = heard[str(i)]
        said = [token for output in outputs for token in output.token_ids]
        assert [output.finished for output in outputs] == [False] * (len(outputs) - 1) + [True]
        reason = outputs[-1].finish_reason
        if reason in (FinishReason.ABORT, FinishReason.TIMEOUT):
            limit = ask.aborted if reason == FinishReason.ABORT else ask.timeout_s
            assert limit is not None
            assert said == text[: len(said)]
        else:
            assert said == text
            assert (reason == FinishReason.STOP) == is_stopped
    stats = engine.stats()
    assert (stats.running, stats.waiting, stats.blocks_used, stats.host_blocks_used) == (0,) * 4
    assert stats.wasted_steps <= (len(asked) if config.overlap else 0)
    return stats


@settings(max_examples=4 * settings().max_examples if not FULL else 10_000)
@given(config=configs, asked=asks, delays=st.integers(0, 1000))
def test_text_is_that_of_the_request_alone_whatever_the_schedule(config, asked, delays):
    check(config, asked, delays)
