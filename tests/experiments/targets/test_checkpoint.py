"""A model that a plan names and that is not there."""

import pytest

from engine.errors import CheckpointError
from experiments.targets.checkpoint import model_directory

ELSEWHERE = "fetch-checkpoint smollm2"


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("qwen3-0.6b", "`python -m experiments.peers.random_model qwen3-0.6b qwen3-0.6b` makes it"),
        ("my models/qwen3-0.6b", "random_model qwen3-0.6b 'my models/qwen3-0.6b'` makes it"),
        ("nowhere", ELSEWHERE),
    ],
)
def test_the_command_that_makes_a_shape_is_named(model, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match="no such checkpoint directory") as caught:
        model_directory(model)
    assert words in str(caught.value.remedy)
    assert (ELSEWHERE in str(caught.value.remedy)) == (words == ELSEWHERE)
