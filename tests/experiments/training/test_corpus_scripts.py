"""Script-made text: right answers, valid JSON, and the chat form of the reference renderer."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random

import pytest

from experiments.training import arithmetic, chat_data, json_data
from experiments.training.chat_format import BOS, EOS, Call, Chat, Exchange, render
from experiments.training.vocabulary import Vocabulary

_WORDS = Vocabulary(
    ("apple", "boat", "cedar", "drum", "eagle", "field", "goat", "harbour"),
    ("small", "green", "quiet", "sharp", "early"),
    ("carry", "open", "count", "paint"),
)
_GOLDEN = Path(__file__).parents[2] / "data" / "chat"


def test_chat_is_rendered_as_the_reference_renders_it():
    chat = Chat([Exchange("q1", "a1"), Exchange("q2", "")], system="S")
    assert BOS + render(chat) == (
        "<｜begin▁of▁sentence｜><｜System｜>S<｜User｜>q1<｜Assistant｜></think>a1"
        "<｜end▁of▁sentence｜><｜User｜>q2<｜Assistant｜></think>"
    )


def test_tool_chat_is_rendered_as_the_reference_renders_it():
    golden = (_GOLDEN / "deepseek_recipe_0.2.0_tools.txt").read_text(encoding="utf-8")
    parameters = {"type": "object", "properties": {"a": {"type": "integer"}}}
    tools = [{"name": n, "description": "D", "parameters": parameters} for n in ("calc", "two")]
    call = Call("calc", {"a": 2, "s": "x"}, "4")
    chat = Chat([Exchange("2+2", "4", "use it", call)], "S", thinking=True, tools=tools)
    assert BOS + render(chat) == golden + "</think>4"


def test_thoughts_of_earlier_turns_are_left_out():
    chat = Chat([Exchange("q1", "a1", "r1"), Exchange("q2", "a2", "r2")], thinking=True)
    assert "r1" not in render(chat)
    assert "<think>r2</think>a2" in render(chat)


@pytest.mark.parametrize("seed", range(40))
def test_sums_are_right(seed):
    exchange = arithmetic.sum_question(Random(seed))
    left, operation, right = re.search(r"(\d+) ([-+*/]) (\d+)", exchange.question).groups()
    a, b = int(left), int(right)
    value = {"+": a + b, "-": a - b, "*": a * b, "/": a // b}[operation]
    assert value >= 0
    assert operation != "/" or a % b == 0
    assert re.search(r"\d+\.?$", exchange.answer).group().rstrip(".") == str(value)
    assert exchange.thought.endswith(str(value))


def test_addition_is_worked_out_column_by_column():
    steps = arithmetic.addition_steps(347, 89)
    assert steps == "7 + 9 = 16, 4 + 8 + 1 = 13, 3 + 0 + 1 = 4, so 347 + 89 = 436"


def test_multiplication_is_worked_out_digit_by_digit():
    assert arithmetic.multiplication_steps(12, 34) == ("12 * 4 = 48, 12 * 30 = 360, 48 + 360 = 408")


def test_records_are_valid_json_and_repeat_from_a_seed():
    made = list(json_data.documents(Random(5), _WORDS, 60))
    assert all(json.loads(text) for text in made)
    assert made == list(json_data.documents(Random(5), _WORDS, 60))
    assert made != list(json_data.documents(Random(6), _WORDS, 60))


def test_order_total_is_the_sum_of_its_lines():
    for seed in range(20):
        order = json_data.order(Random(seed), _WORDS)
        total = sum(line["quantity"] * line["price"] for line in order["lines"])
        assert order["total"] == pytest.approx(total)


def test_every_synset_is_asked_about_once():
    entries = [chat_data.synset((f"word{i}",), f'meaning {i}; "an example {i}"') for i in range(30)]
    text = EOS.join(chat_data.documents(Random(1), _WORDS, entries, 0))
    for i in range(30):
        assert len(re.findall(rf"word{i}\b", text)) + len(re.findall(rf" {i}\b", text)) >= 1
        assert len(re.findall(rf"(?:meaning|example) {i}\b", text)) == 1


def test_gloss_is_split_into_definition_and_examples():
    entry = chat_data.synset(("rest",), 'a pause; a halt; "he took a rest"; "no rest"')
    assert entry.definition == "a pause; a halt"
    assert entry.examples == ("he took a rest", "no rest")


def test_extracted_json_holds_facts_of_the_sentence():
    chat = chat_data.extraction(Random(3), _WORDS)
    facts = json.loads(chat.exchanges[0].answer)
    assert len(facts) >= 2
    for value in facts.values():
        parts = value if isinstance(value, list) else [value]
        assert all(str(part) in chat.exchanges[0].question for part in parts)


def test_python_answers_agree_with_python():
    checked = 0
    for seed in range(60):
        exchange = chat_data.python(Random(seed), _WORDS).exchanges[0]
        asked = re.search(r"(\[\d.*\]|\[n for.*\]|sum\(.*\))\?", exchange.question)
        if asked and "Write" not in exchange.question:
            assert str(eval(asked.group(1))) == exchange.answer
            checked += 1
    assert checked > 5
