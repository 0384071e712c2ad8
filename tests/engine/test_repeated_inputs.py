"""A step that repeats the one before it is told to the device as if it did not."""

from dataclasses import replace

import pytest
import torch

from engine.config import EngineConfig
from engine.core import Engine
from engine.models.causal_lm.model import CausalModel
from engine.models.causal_lm.weights import expected_shapes
from engine.models.dummy_causal import DummyWeights
from engine.repeated_inputs import RepeatedInputs
from engine.request import SamplingParams
from engine.step_inputs import StepInputsBuilder
from tests.fakes.causal import DOCUMENTS, causal_config
from tests.fakes.texts import texts

PROMPTS = [tuple(range(3, 3 + n)) for n in (5, 9, 14)]
GREEDY = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)
ASKED = {
    "greedy": (GREEDY,) * 3,
    "seeded": tuple(replace(GREEDY, temperature=0.8, top_k=5, seq_seed=n) for n in range(3)),
    "ends apart": tuple(replace(GREEDY, max_tokens=n) for n in (4, 20, 11)),
    "barred at first": (replace(GREEDY, min_tokens=6, ignore_eos=False), GREEDY, GREEDY),
    "log-probabilities": (replace(GREEDY, logprobs=2), GREEDY, GREEDY),
}
NEVER_REPEATED = "log-probabilities"


class Source:
    """A `ModelSource` of one model."""

    def __init__(self):
        config = causal_config(DOCUMENTS["qwen3"])
        draw = torch.Generator().manual_seed(0)
        weights = DummyWeights(expected_shapes(config), torch.float64, draw)
        self.model = CausalModel(config, weights, dtype=torch.float64)

    def facts(self, _config):
        return self.model.facts

    def load(self, _resolved, _accelerator):
        return self.model


@pytest.fixture
def told(monkeypatch):
    """Of each step: what it was told, what a builder lays out, and whether one was asked."""
    steps, asked = [], []
    plain, repeating = StepInputsBuilder.build, RepeatedInputs.build

    def build(self, entries, table):
        asked.append(entries)
        return plain(self, entries, table)

    def compared(self, entries, table):
        before = len(asked)
        found = repeating(self, entries, table)
        is_built = len(asked) > before
        kept = {name: tensor.clone() for name, tensor in found.ints.items()}
        rules = {name: tensor.clone() for name, tensor in found.rules.items()}
        exact = plain(self._builder, entries, table)
        steps.append((replace(found, ints=kept, rules=rules), exact, is_built))
        for name, tensor in exact.ints.items():
            is_news = name.startswith("table_")  # the table has told those already
            assert is_news or torch.equal(kept[name], tensor), name
        assert rules.keys() == exact.rules.keys()
        assert all(torch.equal(rules[name], exact.rules[name]) for name in rules)
        return replace(found, ints=kept, rules=rules)

    monkeypatch.setattr(StepInputsBuilder, "build", build)
    monkeypatch.setattr(RepeatedInputs, "build", compared)
    return steps


@pytest.mark.parametrize("name", ASKED)
def test_every_step_is_told_what_a_builder_would_lay_out(name, told):
    config = EngineConfig(
        model="small", dtype="float64", max_model_len=96, block_tokens=4, overlap=False
    )
    asked = list(zip(PROMPTS, ASKED[name], strict=True))
    found = texts(Engine(config, source=Source()), asked)
    repeated = [step for step in told if not step[2]]
    assert bool(repeated) == (name != NEVER_REPEATED)
    for inputs, exact, _ in told:
        names = ("entries", "spans", "query_start", "has_prompt_rows", "longest_draft",
                 "widest_table", "top_logprobs", "decoder_rows")  # fmt: skip
        for field in names:
            assert getattr(inputs, field) == getattr(exact, field), field
    alone = [texts(Engine(config, source=Source()), [one])[0] for one in asked]
    assert found == alone
