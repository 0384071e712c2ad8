"""Makes the set that the checkpoint `nano` can be asked, and holds it apart from what it learned.

`python -m experiments.evals.make_nano_set --out FILE --cache .train/cache` writes the same file
again, byte for byte. Its questions are drawn as the chats of the training corpus are, by another
seed. All of those chats are made again, those held out included, and a question is left out where
any of them asks it in the same words, or holds its sum (`12 + 7`, also as a step of a working).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Annotated

import typer

from experiments.evals.numerals import numbers, shown
from experiments.training import arithmetic, chat_data, corpus, extraction
from experiments.training.chat_format import ASSISTANT, USER, Exchange
from experiments.training.packages import fetch, members
from experiments.training.sources import WORDNET, WORDNET_MEMBERS
from experiments.training.vocabulary import Vocabulary

SEED = 20261130
SUMS, STORIES, LISTS, FACTS = 40, 20, 20, 40
MOST_OPERAND = 999
_NOUNS = """
anchor apple barrel basket bell bottle bridge candle carpet castle chair clock cloud coin curtain
desk door feather fence flute forest garden glove hammer harbour hat helmet island kettle key
ladder lamp lemon letter map mirror mountain needle oven paper pencil piano pillow pocket river
rope saddle sail scarf shell shovel silver spoon table tower valley violin wagon wheel window
"""
_SUM = re.compile(r"(?<!\d)(\d+) ([-+*/×]) (\d+)")
_ASKED = re.compile(f"{USER}(.*?){ASSISTANT}", re.DOTALL)

Row = dict[str, object]


def ways_asked(question: str) -> set[str]:
    """Names of what a question asks: its words, and its sums."""
    return {question, *sums_in(question)}


def sums_in(text: str) -> set[str]:
    """Every `a + b` that is written in a text, both ways round where the order is the same."""
    found: set[str] = set()
    for a, operation, b in _SUM.findall(text):
        operation = operation.replace("×", "*")
        found.add(f"{a} {operation} {b}")
        if operation in "+*":
            found.add(f"{b} {operation} {a}")
    return found


def learned_from(chats: Iterable[str]) -> set[str]:
    """All that any exchange of the chats asks, and every sum in them, workings included."""
    found: set[str] = set()
    for chat in chats:
        found.update(_ASKED.findall(chat))
        found |= sums_in(chat)
    return found


def rows(learned: set[str], seed: int = SEED) -> list[Row]:
    """The set, shuffled: sums of numbers up to 999, stories, lists, facts to write as JSON."""
    rng = Random(seed)
    words = Vocabulary(nouns=tuple(_NOUNS.split()), adjectives=(), verbs=())
    makers: tuple[tuple[str, int, Callable[[], Row | None]], ...] = (
        ("sum", SUMS, lambda: _sum(rng)),
        ("story", STORIES, lambda: _story(rng, words)),
        ("list", LISTS, lambda: _list(rng, words)),
        ("facts", FACTS, lambda: _facts(rng, words)),
    )
    taken = set(learned)
    found = [
        {"id": f"{name}-{number:02}", **_new(make, taken), "instruction": ""}
        for name, count, make in makers
        for number in range(1, count + 1)
    ]
    rng.shuffle(found)
    return found


def _new(make: Callable[[], Row | None], taken: set[str]) -> Row:
    """The next one that nothing has asked."""
    while True:
        row = make()
        if row is None:
            continue
        ways = ways_asked(str(row["question"]))
        if not ways & taken:
            taken |= ways
            return row


def _sum(rng: Random) -> Row | None:
    exchange = arithmetic.sum_question(rng)
    if max(map(int, re.findall(r"\d+", exchange.question))) > MOST_OPERAND:
        return None
    return _numeric(exchange)


def _story(rng: Random, words: Vocabulary) -> Row:
    return _numeric(arithmetic.story_question(rng, words))


def _numeric(exchange: Exchange) -> Row:
    """The answer that the exchange ends with is its last number."""
    answer = shown(numbers(exchange.answer)[-1])
    return {"question": exchange.question, "kind": "number", "answer": int(answer)}


def _list(rng: Random, words: Vocabulary) -> Row:
    """Sorting, counting, spelling: the answer is a few words, or a number."""
    exchange = chat_data.about_list(rng, words).exchanges[0]
    return {"question": exchange.question, "kind": "exact", "answer": exchange.answer}


def _facts(rng: Random, words: Vocabulary) -> Row | None:
    chat = chat_data.extraction(rng, words)
    if chat.system or chat.response_schema is not None:
        return None
    exchange = chat.exchanges[0]
    return {
        "question": exchange.question,
        "kind": "json",
        "answer": json.loads(exchange.answer),
    }


def learned_chats(cache_dir: Path) -> Iterator[str]:
    """The chats of the corpus, made again from its seed."""
    content = dict(members(fetch(WORDNET, cache_dir)))
    words = corpus.vocabulary(content)
    synsets = [entry for name in WORDNET_MEMBERS for entry in extraction.synsets(content[name])]
    entries = [chat_data.synset(*entry) for entry in synsets[1::2]]
    yield from chat_data.documents(Random(corpus.SEED), words, entries, corpus.CHATS)


def _main(
    out: Annotated[Path, typer.Option(help="The file to write.")],
    cache: Annotated[Path, typer.Option(help="Where packages are kept.")] = Path(".train/cache"),
) -> None:
    learned = learned_from(learned_chats(cache))
    lines = [json.dumps(row, ensure_ascii=False) for row in rows(learned)]
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(_main)
