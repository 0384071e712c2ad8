"""What `workbench plan` says of tokenizers and precisions before anything is measured."""

from types import SimpleNamespace

import pytest

from engine.tokenizer import Tokenizer
from workbench.cli_plan import say_precisions, say_tokenizers


def trial(arm, dtype="bfloat16", model="/models/llama", tokenizer_hash="vocabulary"):
    facts = SimpleNamespace(
        model=model, tokenizer_hash=tokenizer_hash, simulated=False, configuration={"dtype": dtype}
    )
    return SimpleNamespace(point=SimpleNamespace(axes={"arm": arm}), facts=facts)


def outlook(*trials):
    return SimpleNamespace(trials=list(trials))


def test_arms_of_several_precisions_are_told(capsys):
    say_precisions(outlook(trial("ours", "float32"), trial("vllm"), trial("transformers")))
    told = " ".join(capsys.readouterr().out.split())
    assert "float32: ours; bfloat16: transformers, vllm" in told


@pytest.mark.parametrize(
    "trials",
    [
        [trial("ours"), trial("vllm")],
        [trial(arm, dtype) for arm in ("ours", "vllm") for dtype in ("float32", "bfloat16")],
    ],
    ids=["one", "an axis of all"],
)
def test_arms_that_can_be_compared_are_not_warned_of(trials, capsys):
    say_precisions(outlook(*trials))
    assert not capsys.readouterr().out


def test_a_checkpoint_without_a_tokenizer_is_told_from_one_that_has_it(capsys):
    bare = Tokenizer.of_bytes().hash
    say_tokenizers(outlook(trial("a"), trial("b", model="/models/bare", tokenizer_hash=bare)))
    assert capsys.readouterr().out.splitlines() == [
        "texts become tokens by the tokenizer of llama",
        "texts become tokens byte by byte: there is no tokenizer.json in bare",
    ]
