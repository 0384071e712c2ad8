"""The shipped set is what its script makes, and apart from what the script was told to avoid."""

import json
from importlib.resources import files

from experiments.evals.make_nano_set import learned_from, rows, sums_in, ways_asked
from experiments.training.chat_format import ASSISTANT, USER


def shipped():
    text = (files("experiments.evals") / "nano.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_a_sum_is_known_in_any_words_and_in_a_working():
    assert sums_in("How much is 12 + 7?") == {"12 + 7", "7 + 12"}
    assert sums_in("5 × 3 is 5 * 3, 9 - 4") == {"5 * 3", "3 * 5", "9 - 4"}
    chat = f"{USER}What is 3 - 2?{ASSISTANT}2 + 1 = 3, so 1{USER}And?{ASSISTANT}x"
    assert learned_from([chat]) == {"What is 3 - 2?", "And?", "3 - 2", "2 + 1", "1 + 2"}


def test_what_was_learned_is_never_asked():
    first = rows(set())
    learned = {way for row in first for way in ways_asked(row["question"])}
    second = rows(learned)
    assert not learned & {way for row in second for way in ways_asked(row["question"])}
    assert rows(learned) == second


def test_no_two_shipped_questions_ask_the_same():
    found = [way for row in shipped() for way in {row["question"], *sums_in(row["question"])}]
    assert len(shipped()) == 120
    assert len({row["question"] for row in shipped()}) == 120
    assert len(found) >= 120
