import json
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import torch

from experiments.errors import PlanError
from experiments.training import batches, recipe, sizes, store
from experiments.training.optimiser import orthogonalised
from experiments.training.train import Limits, go, resume
from experiments.training.trainer import Run, Trainer

CPU = torch.device("cpu")
TEXT = (b"the cat sat on the mat and the dog sat on the cat; " * 80)[:4000]


def run_of_the_smoke_recipe(**changes):
    plan = replace(recipe.find("smoke"), **changes)
    facts = sizes.TokenFacts(vocab_size=131, compressed_vocab_size=131, noise_token_id=130)
    return Run(
        recipe=plan,
        config=sizes.model_config(plan.sizes, facts),
        token_map=list(range(131)),
        training={"english": np.frombuffer(TEXT, np.uint8).astype(np.uint16)},
        device=CPU,
        compiled=False,
    )


def ticking(seconds):
    """A clock that advances one second at each look; `go` looks once a step."""
    ticks = count()
    return Limits(seconds=seconds, clock=lambda: next(ticks))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("whole")
    trainer = Trainer(run_of_the_smoke_recipe())
    first = float(trainer.advance()["loss"])
    assert go(trainer, folder, Limits(seconds=None, clock=lambda: 0.0))
    masters = {key: tensor.clone() for key, tensor in trainer.masters.items()}
    return trainer, masters, folder, first


def test_the_smoke_run_learns(whole):
    trainer, _, folder, first = whole
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert log[-1]["step"] == trainer.steps
    assert "agreement" in log[-1]
    again = Trainer(run_of_the_smoke_recipe())
    again.restore(store.load_state(folder, CPU))
    again.step = 0  # the first batch under the trained weights
    again._begin_part()
    assert again.advance()["loss"] < 0.75 * first


def test_a_run_in_pieces_equals_one_run_bit_for_bit(whole, tmp_path):
    _, masters, _, _ = whole
    plan = recipe.find("smoke")
    in_the_target, in_the_drafter = plan.phases[0].steps + 2, plan.target_steps + 2
    done = go(Trainer(run_of_the_smoke_recipe()), tmp_path, ticking(in_the_target - 0.5))
    assert not done
    for limits in (ticking(in_the_drafter - in_the_target), ticking(None)):
        again = Trainer(run_of_the_smoke_recipe())
        resume(again, tmp_path)
        assert 0 < again.step < again.steps
        done = go(again, tmp_path, limits)
    assert done
    assert all(torch.equal(again.masters[key], masters[key]) for key in masters)


def test_resuming_without_a_state_names_the_folder(tmp_path):
    with pytest.raises(PlanError, match=str(tmp_path)):
        resume(Trainer(run_of_the_smoke_recipe()), tmp_path)


def test_masters_survive_their_files(whole, tmp_path):
    _, masters, _, _ = whole
    store.save_masters(tmp_path, masters)
    back = store.load_masters(tmp_path)
    assert back.keys() == masters.keys()
    assert all(torch.equal(back[key], masters[key]) for key in back)


def test_an_epoch_visits_every_stretch_once():
    run = run_of_the_smoke_recipe()
    string = batches.TokenString({"x": np.arange(1000)}, run.recipe, CPU)
    per_epoch = 1000 // 64 - 1
    starts = string.sequences(0, per_epoch, 64)[:, 0].tolist()
    assert len({start // 64 for start in starts}) == per_epoch
    assert {start % 64 for start in starts} == {starts[0] % 64}
    assert string.sequences(per_epoch, per_epoch, 64)[:, 0].tolist() != starts


def test_rows_between_the_floor_and_the_cut_carry_no_loss():
    plan = recipe.find("smoke")
    phase = plan.phases[1]
    drawn = batches.draw(plan, phase, 3, CPU)
    weights = batches.loss_weights(drawn.floor, drawn.cut, phase.length)
    truncated = drawn.floor > 0
    assert truncated.any()
    assert not truncated.all()
    assert (drawn.cut[truncated] - drawn.floor[truncated] == plan.keep_tokens).all()
    assert ((weights == 0).sum(-1)[truncated] == plan.keep_tokens - 1).all()
    assert (weights[~truncated] == 1).all()


def test_muon_steps_are_nearly_orthogonal():
    generator = torch.Generator().manual_seed(0)
    for shape in ((3, 16, 40), (3, 40, 16)):
        values = torch.linalg.svdvals(orthogonalised(torch.randn(shape, generator=generator)))
        assert values.min() > 0.5
        assert values.max() < 1.5


def test_an_unknown_recipe_lists_the_known_ones():
    with pytest.raises(PlanError, match="nano, smoke"):
        recipe.find("giant")
