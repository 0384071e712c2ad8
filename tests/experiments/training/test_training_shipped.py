import json

import pytest

from engine.checkpoint_directory import resolve_model_dir
from engine.llm import LLM
from engine.request import SamplingParams
from engine.tokenizer import Tokenizer
from experiments.training import recipe, sizes

NANO = resolve_model_dir("nano")


def test_nano_takes_at_most_ten_megabytes():
    assert sum(path.stat().st_size for path in NANO.iterdir() if path.is_file()) <= 10_000_000


def test_nano_is_the_model_of_its_recipe():
    document = json.loads((NANO / "config.json").read_text())
    text = document["text_config"]
    facts = sizes.TokenFacts(
        vocab_size=text["vocab_size"],
        compressed_vocab_size=text["engram_compressed_vocab_size"],
        noise_token_id=text["dspark_noise_token_id"],
    )
    assert document == sizes.document(recipe.find("nano").sizes, facts)


def test_nano_has_a_temperature_for_every_draft_position():
    temperatures = json.loads((NANO / "calibration.json").read_text())["temperatures"]
    assert len(temperatures) == sizes.BLOCK
    assert all(0.1 < t < 10 for t in temperatures)


def test_nano_answers_a_chat_and_its_drafts_change_nothing():
    tokenizer = Tokenizer.load(NANO)
    chat = "<｜begin▁of▁sentence｜><｜User｜>What is 3 + 4?<｜Assistant｜></think>"
    prompt = tokenizer.encode(chat)
    assert prompt[0] == 0
    ask = SamplingParams(temperature=0.0, max_tokens=24)
    texts = []
    for draft_length in (5, 0):
        with LLM("nano", draft_length=draft_length) as llm:
            done = llm.generate([prompt], ask)[0]
        texts.append(done.token_ids)
    assert texts[0] == texts[1]
    assert "7" in tokenizer.decode(texts[0])


@pytest.mark.parametrize("check", ["bits", "rounding", "drafts", "confidence", "replay"])
def test_every_check_of_nano_is_stored(check):
    stored = json.loads((NANO / "evaluation.json").read_text())[check]
    if check == "bits":
        baselines = json.loads((NANO / "evaluation.json").read_text())["baselines"]["all"]
        best = min(baselines["witten_bell"], baselines["xz"])
        assert stored["all"]["bits_per_byte"] <= 0.75 * best
    if check == "rounding":
        assert stored["change"] <= 0.01
    if check == "drafts":
        assert stored["all"]["acceptance_length"] >= 2.5
        assert stored["all"]["first_accepted"] >= 0.65
    if check == "confidence":
        assert max(stored["error"]) <= 0.03
    if check == "replay":
        assert abs(stored["change_of_bits_per_byte"]) <= 0.01
