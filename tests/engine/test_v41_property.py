"""V4.1 in float64: the same tokens however the engine cuts, mixes and repeats the work."""

import random
from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import EngineConfig
from engine.core import Engine
from engine.llm import LLM
from engine.make_checkpoint import make_checkpoint
from engine.request import SamplingParams
from tests.fakes.models import VOCAB
from tests.fakes.null_device import erratic_engine
from tests.fakes.small_source import SmallSource
from tests.fakes.texts import texts

EXACT = {"model": "small", "dtype": "float64", "max_model_len": 96}

sources = st.builds(
    SmallSource,
    seed=st.integers(0, 3),
    window=st.sampled_from([2, 5]),
    encoder=st.sampled_from([(2,), (1, 1)]),
    decoder=st.sampled_from([(2, 1), (1,)]),
    engram=st.sampled_from([(1,), (0, 2)]),
)
asks = st.lists(
    st.tuples(
        st.lists(st.integers(0, VOCAB - 2), min_size=1, max_size=36).map(tuple),
        st.builds(
            SamplingParams,
            temperature=st.sampled_from([0.0, 0.8]),
            top_p=st.sampled_from([1.0, 0.9]),
            max_tokens=st.integers(1, 24),
            ignore_eos=st.booleans(),
            seq_seed=st.integers(0, 9),
        ),
    ),
    min_size=1,
    max_size=4,
)
schedules = st.fixed_dictionaries(
    {
        "draft_length": st.integers(0, 5),
        "replay_mode": st.sampled_from(["mask", "compact", "compact"]),
        "max_num_seqs": st.integers(1, 4),
        "max_num_batched_tokens": st.integers(1, 64),
        "block_tokens": st.sampled_from([2, 4, 8]),
        "cache_tokens": st.sampled_from([64, 72, 400]),
        "admission": st.sampled_from(["greedy", "predicted"]),
        "swap_tokens": st.sampled_from([0, 64]),
        "overlap": st.sampled_from([True, True, False]),
    }
)


@lru_cache
def alone(source, prompt, params, keep):
    """One request, one engine: prefilled at once, no draft, every row computed."""
    config = EngineConfig(
        **EXACT, draft_length=0, replay_mode="mask", replay_keep_tokens=keep, max_num_seqs=1
    )
    return texts(Engine(config, source=source), [(prompt, params)])[0]


@settings(max_examples=settings().max_examples // 2)
@given(
    source=sources,
    asked=asks,
    schedule=schedules,
    beyond=st.integers(6, 14),
    delays=st.integers(0, 99),
)
def test_the_same_tokens_whatever_the_batch_drafts_chunks_preemptions_and_truncation_mode(
    source, asked, schedule, beyond, delays
):
    keep = source.window + beyond
    expected = [alone(source, prompt, params, keep) for prompt, params in asked]
    config = EngineConfig(**EXACT, **schedule, replay_keep_tokens=keep)
    assert texts(erratic_engine(config, source, delays), asked) == expected


def test_preemption_in_a_full_cache_changes_no_token():
    source = SmallSource()
    greedy = SamplingParams(temperature=0.0, max_tokens=28, ignore_eos=True)
    seeded = SamplingParams(temperature=0.9, max_tokens=28, ignore_eos=True, seq_seed=5)
    asked = [(tuple(range(3 + i, 33)), params) for i in range(2) for params in (greedy, seeded)]
    config = EngineConfig(
        **EXACT, cache_tokens=96, block_tokens=4, replay_keep_tokens=12, admission="greedy"
    )
    engine = Engine(config, source=source)
    found = texts(engine, asked)
    assert engine.stats().preemptions > 0
    assert engine.stats().decoder_rows_skipped > 0
    assert found == [alone(source, prompt, params, 12) for prompt, params in asked]


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return make_checkpoint("toy", seed=0, directory=tmp_path_factory.mktemp("made") / "toy")


@pytest.mark.full
@settings(max_examples=max(1, settings().max_examples // 50))
@given(seed=st.integers(0, 99), lengths=st.lists(st.integers(1, 300), min_size=2, max_size=4))
def test_a_checkpoint_says_the_same_past_its_window_and_its_selection(toy, seed, lengths):
    """Prompts longer than the window (32) and the selection (32 rows), from files, quantised."""
    draw = random.Random(seed)
    params = SamplingParams(temperature=0.8, max_tokens=40, ignore_eos=True, seq_seed=seed)
    asked = [(tuple(draw.choices(range(256), k=length)), params) for length in lengths]
    config = {"model": str(toy), "dtype": "float64", "max_model_len": 400}
    plain = {"draft_length": 0, "replay_mode": "mask", "max_num_seqs": 1}
    busy = {"max_num_batched_tokens": draw.randint(8, 64), "cache_tokens": 768}
    engine = Engine(EngineConfig(**config, **busy))
    assert texts(engine, asked) == texts(Engine(EngineConfig(**config, **plain)), asked)


@pytest.mark.parametrize("draft_length", [0, 5])
def test_two_replicas_say_what_one_engine_says(draft_length):
    prompts = [list(range(i, 20 + i)) for i in range(5)]
    params = SamplingParams(temperature=0.8, max_tokens=12)  # seeds are drawn by the engine
    found = []
    for replicas in (1, 2):
        config = {**EXACT, "draft_length": draft_length, "data_parallel_size": replicas}
        with LLM(source=SmallSource(), **config) as model:
            found.append([c.token_ids for c in model.generate(prompts, params)])
    assert found[0] == found[1]
    assert len(set(found[0])) == 5
