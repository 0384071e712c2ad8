import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from engine.models.deepseek_v41.config import DeepseekV41Config
from engine.models.deepseek_v41.contract import parameters
from experiments.training import draft, masters, recipe, sizes, stacks
from experiments.training.forward import Batch, Operations, Target

GOLDEN = Path(__file__).parents[2] / "data" / "golden"
CPU = torch.device("cpu")


@pytest.fixture(scope="module", params=["v41-a", "v41-c"])
def golden(request):
    folder = GOLDEN / request.param
    config = DeepseekV41Config.load(folder)
    groups = stacks.layout(config)
    table = stacks.views(stacks.stack(load_file(folder / "model.safetensors"), groups), groups)
    token_map = json.loads((folder / "engram_token_map.json").read_text())
    facts = json.loads((folder / "golden.json").read_text())
    target = Target(config, token_map, Operations(), CPU)
    return target, table, load_file(folder / "outputs.safetensors"), facts


def padded(ids, window):
    """Lengths must be multiples of the window; what comes after changes nothing before."""
    return torch.nn.functional.pad(ids, (0, -len(ids) % window + window)).unsqueeze(0)


def logits(target, table, batch):
    with torch.no_grad():
        passed = target.run(table, batch, sparse=True)
        return passed, passed.hidden @ table["head.weight"].T


def test_sequences_get_the_logits_of_the_release(golden):
    target, table, outputs, _ = golden
    ids = outputs["ids"]
    passed, got = logits(target, table, Batch(padded(ids, target.config.sliding_window)))
    assert (got[: len(ids)] - outputs["fp32.logits"]).abs().max() < 5e-4
    assert (passed.taps[: len(ids)] - outputs["fp32.taps"]).abs().max() < 5e-4


def test_a_floor_truncates_the_decoder_as_the_release_replays(golden):
    target, table, outputs, facts = golden
    prompt, keep = facts["prompt_length"], facts["replay_keep"]
    floor = torch.tensor([prompt - keep])
    tokens = padded(outputs["ids"], target.config.sliding_window)
    _, got = logits(target, table, Batch(tokens, floor))
    after = prompt + facts["decode_after_replay"]
    replayed = got[prompt - keep : prompt] - outputs["fp32.replay.logits"]
    assert replayed.abs().max() < 5e-4
    assert (got[prompt:after] - outputs["fp32.replay.decode_logits"]).abs().max() < 5e-4


def test_an_anchor_drafts_what_the_release_drafts(golden):
    target, table, outputs, facts = golden
    prompt = facts["prompt_length"]
    ids = torch.cat((outputs["ids"][:prompt], outputs["fp32.dspark.ids"]))
    tokens = padded(ids, target.config.sliding_window)
    passed, _ = logits(target, table, Batch(tokens))
    with torch.no_grad():
        got = draft.draft(
            table,
            draft.Context(tokens, passed.taps),
            torch.tensor([[prompt]]),
            target.config,
            target.operations,
        )
    assert (got.logits - outputs["fp32.dspark.logits"]).abs().max() < 5e-4
    assert (got.confidence - outputs["fp32.dspark.conf"]).abs().max() < 5e-4


def smoke():
    plan = recipe.find("smoke")
    facts = sizes.TokenFacts(vocab_size=97, compressed_vocab_size=50, noise_token_id=96)
    config = sizes.model_config(plan.sizes, facts)
    groups = stacks.layout(config)
    weights = masters.initial(groups, seed=5)
    return config, groups, weights


def test_unstacking_gives_back_every_released_name_and_shape():
    config, groups, weights = smoke()
    named = stacks.unstack(weights, groups)
    assert {name: tuple(t.shape) for name, t in named.items()} == {
        name: parameter.shape for name, parameter in parameters(config).items()
    }
    again = stacks.stack(named, groups)
    assert all(torch.equal(again[key], weights[key]) for key in groups)


def test_the_dense_phase_equals_selecting_every_row():
    config, groups, weights = smoke()
    everything = replace(config, index_topk=10_000, candidate_topk_blocks=10_000)
    table = stacks.views(weights, groups)
    tokens = torch.randint(0, 97, (2, 64), generator=torch.Generator().manual_seed(0))
    target = Target(everything, [t % 50 for t in range(97)], Operations(), CPU)
    with torch.no_grad():
        dense = target.run(table, Batch(tokens), sparse=False).hidden
        sparse = target.run(table, Batch(tokens), sparse=True).hidden
    torch.testing.assert_close(dense, sparse, atol=1e-4, rtol=1e-4)


def test_the_indexer_learns_from_its_own_loss_only():
    config, groups, weights = smoke()
    leaves = {key: tensor.requires_grad_() for key, tensor in weights.items()}
    tokens = torch.randint(0, 97, (2, 64), generator=torch.Generator().manual_seed(0))
    target = Target(config, [t % 50 for t in range(97)], Operations(), CPU)
    table = stacks.views(leaves, groups)
    passed = target.run(table, Batch(tokens), sparse=True, sampled=torch.arange(0, 64, 2))
    passed.hidden.square().sum().backward(retain_graph=True)
    indexers = [key for key in groups if "indexer" in key]
    assert indexers
    assert all(leaves[key].grad is None or not leaves[key].grad.any() for key in indexers)
    other = leaves["layers.*.attn.wq_b.weight"].grad.clone()
    passed.index_loss.backward()
    assert all(leaves[key].grad.any() for key in indexers)
    assert torch.equal(leaves["layers.*.attn.wq_b.weight"].grad, other)


def test_a_truncated_row_does_not_see_decoder_rows_before_its_floor():
    config, groups, weights = smoke()
    table = stacks.views(weights, groups)
    tokens = torch.randint(0, 97, (1, 64), generator=torch.Generator().manual_seed(0))
    target = Target(config, [t % 50 for t in range(97)], Operations(), CPU)
    with torch.no_grad():
        free = target.run(table, Batch(tokens), sparse=True).hidden
        cut = target.run(table, Batch(tokens, torch.tensor([40])), sparse=True).hidden
    torch.testing.assert_close(free[:40], cut[:40])
    assert (free[40:] - cut[40:]).abs().amax(-1).min() > 0
