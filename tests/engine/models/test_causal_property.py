"""Llama, Qwen3 and Qwen3-MoE in float64: the same tokens however the engine cuts the work."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import EngineConfig
from engine.core import Engine
from engine.models.causal_lm.model import CausalModel
from engine.models.causal_lm.weights import expected_shapes
from engine.models.dummy_causal import DummyWeights
from engine.request import SamplingParams
from tests.fakes.causal import DOCUMENTS, causal_config
from tests.fakes.null_device import erratic_engine
from tests.fakes.texts import texts

EXACT = {"model": "small", "dtype": "float64", "max_model_len": 96}


@dataclass(frozen=True)
class Loaded:
    """A `ModelSource` of one model, made once."""

    model: CausalModel

    def facts(self, _config):
        return self.model.facts

    def load(self, _resolved, _accelerator):
        return self.model


def loaded(document):
    config = causal_config(document)
    draw = torch.Generator().manual_seed(0)
    weights = DummyWeights(expected_shapes(config), torch.float64, draw)
    return Loaded(CausalModel(config, weights, dtype=torch.float64))


SOURCES = [loaded(document) for document in DOCUMENTS.values()]

asks = st.lists(
    st.tuples(
        st.lists(st.integers(0, 96), min_size=1, max_size=36).map(tuple),
        st.builds(
            SamplingParams,
            temperature=st.sampled_from([0.0, 0.8]),
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
        "max_num_seqs": st.integers(1, 4),
        "max_num_batched_tokens": st.integers(1, 64),
        "block_tokens": st.sampled_from([2, 4, 16]),
        "cache_tokens": st.sampled_from([64, 80, 400]),
        "admission": st.sampled_from(["greedy", "predicted"]),
        "swap_tokens": st.sampled_from([0, 64]),
        "overlap": st.sampled_from([True, True, False]),
    }
)


@lru_cache
def alone(source, prompt, params):
    config = EngineConfig(**EXACT, max_num_seqs=1)
    return texts(Engine(config, source=source), [(prompt, params)])[0]


@settings(max_examples=settings().max_examples // 2)
@given(source=st.sampled_from(SOURCES), asked=asks, schedule=schedules, delays=st.integers(0, 99))
def test_the_same_tokens_whatever_the_batch_chunks_and_preemptions(source, asked, schedule, delays):
    expected = [alone(source, prompt, params) for prompt, params in asked]
    config = EngineConfig(**EXACT, **schedule)
    assert texts(erratic_engine(config, source, delays), asked) == expected


def test_preemption_in_a_full_cache_changes_no_token():
    greedy = SamplingParams(temperature=0.0, max_tokens=28, ignore_eos=True)
    asked = [(tuple(range(3 + i, 33)), greedy) for i in range(4)]
    config = EngineConfig(**EXACT, cache_tokens=96, block_tokens=4, admission="greedy")
    for source in SOURCES:
        engine = Engine(config, source=source)
        found = texts(engine, asked)
        assert engine.stats().preemptions > 0
        assert found == [alone(source, prompt, params) for prompt, params in asked]
