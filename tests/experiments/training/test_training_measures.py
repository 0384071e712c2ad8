import json

import numpy as np
import pytest
import torch

from engine.llm import LLM
from engine.models.deepseek_v41.config import DeepseekV41Config
from engine.models.deepseek_v41.weights import load_weights
from engine.request import SamplingParams
from engine.tokenizer import TOKEN_MAP_FILE, TOKENIZER_FILE
from experiments.training import confidence, export, masters, recipe, scoring, sizes, stacks
from experiments.training.acceptance import Output, summarise
from experiments.training.forward import Batch, Operations, Target

VOCABULARY, COMPRESSED = 97, 50
TOKEN_MAP = [token % COMPRESSED for token in range(VOCABULARY)]


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    plan = recipe.find("smoke")
    facts = sizes.TokenFacts(
        vocab_size=VOCABULARY, compressed_vocab_size=COMPRESSED, noise_token_id=96
    )
    config = sizes.model_config(plan.sizes, facts)
    groups = stacks.layout(config)
    weights = masters.initial(groups, seed=3)
    tokenizer = folder / "source.json"
    tokenizer.write_text("{}")
    named = stacks.unstack(weights, groups)
    tensors = export.released(named, config)
    export.write(folder / "it", tensors, sizes.document(plan.sizes, facts), tokenizer)
    (folder / "it" / TOKENIZER_FILE).unlink()
    (folder / "it" / TOKEN_MAP_FILE).write_text(json.dumps(TOKEN_MAP))
    return folder / "it", groups, weights


def test_the_exported_weights_are_the_masters_rounded(shipped):
    folder, groups, weights = shipped
    config = DeepseekV41Config.load(folder)
    loaded = load_weights(folder, config, dtype=torch.float32, device="cpu")
    for key, group in groups.items():
        expected = masters.rounded(weights[key], group.storage)
        for name, tensor in zip(group.names, expected, strict=True):
            assert torch.equal(loaded[name], tensor), name


def test_the_engine_scores_text_as_the_training_pass_does(shipped):
    folder, groups, _ = shipped
    config = DeepseekV41Config.load(folder)
    weights = load_weights(folder, config, dtype=torch.float32, device="cpu")
    table = stacks.views(stacks.stack(weights, groups), groups)
    tokens = torch.randint(3, 90, (1, 128), generator=torch.Generator().manual_seed(0))
    target = Target(config, TOKEN_MAP, Operations(), torch.device("cpu"))
    with torch.no_grad():
        passed = target.run(table, Batch(tokens), sparse=True)
        logits = passed.hidden @ table["head.weight"].T
    expected = logits.log_softmax(-1)[:-1].gather(-1, tokens[0, 1:, None]).squeeze(-1)
    with LLM(folder, replay_mode="off") as llm:
        ask = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=True)
        done = llm.generate([tokens[0].tolist()], ask)[0]
    got = torch.tensor([entry.logprob for entry in done.prompt_logprobs[1:]])
    assert (got - expected).abs().max() < 1e-3


def test_chunks_predict_every_token_but_the_first_once():
    tokens = np.arange(5000)
    predicted = [token for chunk in scoring.chunks(tokens) for token in chunk[1:]]
    assert predicted == list(range(1, 5000))
    assert scoring.chunks(tokens, stride=2) == scoring.chunks(tokens)[::2]


def test_an_output_that_ends_in_a_repeated_stretch_loops():
    words = tuple(range(128))
    assert not Output(token_ids=words, accepted=()).loops
    assert Output(token_ids=words[:68] + (7, 8, 9) * 20, accepted=()).loops
    assert Output(token_ids=(7, 8, 9) * 20 + words, accepted=()).loops is False


def test_acceptance_leaves_loops_out_and_counts_the_bonus_token():
    straight = Output(token_ids=tuple(range(128)), accepted=(5, 0, 1))
    loop = Output(token_ids=(4,) * 128, accepted=(5, 5))
    got = summarise([straight, loop])
    assert (got.outputs, got.loops, got.verify_steps) == (2, 1, 3)
    assert got.acceptance_length == 3.0
    assert got.first_accepted == pytest.approx(2 / 3)
    assert summarise([loop]).acceptance_length is None


def test_temperatures_mend_confidence_that_is_too_sure():
    generator = torch.Generator().manual_seed(0)
    honest = torch.randn((4000, 5), generator=generator, dtype=torch.float64)
    observed = confidence.Observed(logits=honest * 2.0, overlap=honest.sigmoid())
    before = confidence.survival_errors(observed, [1.0] * 5)
    temperatures = confidence.calibrate(observed)
    after = confidence.survival_errors(observed, temperatures)
    assert before[0] > 0.05
    assert max(after) < 0.01
    assert temperatures[:3] == pytest.approx([2.0] * 3, rel=0.1)


def test_calibration_error_weighs_bins_by_their_counts():
    predicted = torch.tensor([0.05, 0.05, 0.95], dtype=torch.float64)
    label = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    assert confidence.calibration_error(predicted, label) == pytest.approx(0.05)
