"""Script-made chats: short questions with answers that a program can be sure of.

Definitions and examples come from WordNet glosses that no other part of the corpus uses; the rest
is arithmetic, counting, words, small Python functions, JSON extraction and tool calls, all worked
out here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from experiments.training import arithmetic, json_data
from experiments.training import vocabulary as draw
from experiments.training.chat_format import Call, Chat, Exchange, render
from experiments.training.vocabulary import Vocabulary

_SYSTEMS = (
    "You are a helpful assistant.",
    "Answer briefly.",
    "Be exact and short.",
    "You are a patient teacher.",
    "Answer in plain English.",
    "You help people with words and numbers.",
)


@dataclass(frozen=True)
class Synset:
    """Words of one meaning, and the gloss that explains it; examples stand apart."""

    words: tuple[str, ...]
    definition: str
    examples: tuple[str, ...]


def synset(words: tuple[str, ...], gloss: str) -> Synset:
    """Split a WordNet gloss into its definition and its quoted examples."""
    parts = [part.strip() for part in gloss.split(";")]
    examples = tuple(part.strip('"') for part in parts if part.startswith('"'))
    definition = "; ".join(part for part in parts if not part.startswith('"'))
    return Synset(words, definition, examples)


def documents(
    rng: Random, words: Vocabulary, synsets: Sequence[Synset], count: int
) -> Iterator[str]:
    """Yield rendered chats: every synset is asked about once; then come `count` other chats.

    Most are of one exchange, so that few bytes of a chat are tags that every chat has.
    """
    queue = list(synsets)
    rng.shuffle(queue)
    while queue:
        taken = [queue.pop() for _ in range(min(len(queue), _exchange_count(rng)))]
        yield render(Chat([about_word(rng, entry) for entry in taken], _system(rng)))
    for _ in range(count):
        yield render(rng.choice(_CHATS)(rng, words))


def about_word(rng: Random, entry: Synset) -> Exchange:
    """A question about the meaning, the use or the name of something."""
    word = rng.choice(entry.words)
    if entry.examples and rng.random() < 0.3:
        asks = ('Use "{}" in a sentence.', "{}: give an example.", "Show me how {} is used.")
        return Exchange(rng.choice(asks).format(word), f"{entry.examples[0]}.")
    if rng.random() < 0.3:
        asks = ("Which word means this: {}?", "What is the word for {}?", "{}: name it.", "{}?")
        others = [other for other in entry.words if other != word]
        also = f" (also {', '.join(others)})" if others else ""
        return Exchange(rng.choice(asks).format(entry.definition), word + also)
    asks = (
        "What does {} mean?",
        "What is {}?",
        "Define {}.",
        'Explain "{}".',
        "{}?",
        "{}: meaning?",
    )
    opening = rng.choice(("", f"{word.capitalize()}: ", "It means: "))
    return Exchange(rng.choice(asks).format(word), f"{opening}{entry.definition}.")


def sums(rng: Random, _words: Vocabulary) -> Chat:
    """One to three sums; in a thinking chat the working is the thought."""
    return Chat(
        [arithmetic.sum_question(rng) for _ in range(_exchange_count(rng))],
        _system(rng),
        thinking=rng.random() < 0.5,
    )


def story(rng: Random, words: Vocabulary) -> Chat:
    """A word problem of two steps."""
    return Chat([arithmetic.story_question(rng, words)], _system(rng), thinking=rng.random() < 0.5)


def about_list(rng: Random, words: Vocabulary) -> Chat:
    """Sorting, counting, spelling, first and last of a few words or numbers."""
    exchanges = [_list_question(rng, words) for _ in range(_exchange_count(rng))]
    return Chat(exchanges, _system(rng))


def _list_question(rng: Random, words: Vocabulary) -> Exchange:
    items = draw.several(rng, words.nouns, 3, 6)
    numbers = [str(rng.randint(1, 9999)) for _ in range(rng.randint(3, 7))]
    word = items[0]
    return rng.choice(
        (
            Exchange(f"Sort these words: {', '.join(items)}", ", ".join(sorted(items))),
            Exchange(
                f"Sort from small to large: {' '.join(numbers)}",
                " ".join(sorted(numbers, key=int)),
            ),
            Exchange(f"Which is the largest: {', '.join(numbers)}?", max(numbers, key=int)),
            Exchange(f"How many letters has {word}?", str(len(word))),
            Exchange(f"Spell {word}.", "-".join(word.upper())),
            Exchange(f"Write {word} backwards.", word[::-1]),
            Exchange(f"How many words are here: {' '.join(items)}?", str(len(items))),
            Exchange(f"Which comes last in the alphabet: {', '.join(items)}?", max(items)),
        )
    )


def python(rng: Random, words: Vocabulary) -> Chat:
    """A small Python function, its use, or what an expression gives."""
    name, other = rng.choice(words.nouns), rng.choice(words.verbs)
    factor, limit = rng.randint(2, 99), rng.randint(2, 999)
    numbers = [rng.randint(1, 99) for _ in range(rng.randint(3, 6))]
    doubled = [factor * n for n in numbers]
    small = [n for n in numbers if n < limit]
    code = "```python\ndef {}_{}({}):\n    return {}\n```"
    exchange = rng.choice(
        (
            Exchange(
                f"Write a Python function {other}_{name} that multiplies {name} by {factor}.",
                code.format(other, name, name, f"{name} * {factor}"),
            ),
            Exchange(
                f"Write {other}_{name} in Python: the entries of {name} below {limit}.",
                code.format(other, name, name, f"[n for n in {name} if n < {limit}]"),
            ),
            Exchange(f"What is [{factor} * n for n in {numbers}]?", str(doubled)),
            Exchange(f"In Python, what is [n for n in {numbers} if n < {limit}]?", str(small)),
            Exchange(f'What is len("{name} {other}") in Python?', str(len(f"{name} {other}"))),
            Exchange(f"sum({numbers})?", str(sum(numbers))),
        )
    )
    return Chat([exchange], _system(rng))


def extraction(rng: Random, words: Vocabulary) -> Chat:
    """Facts in a sentence -> the same facts as JSON, sometimes under a response schema."""
    given, family = draw.person(rng)
    facts: dict[str, object] = {
        "name": f"{given} {family}",
        "age": rng.randint(18, 99),
        "town": draw.town(rng),
        "likes": draw.several(rng, words.nouns, 1, 3),
    }
    likes = " and ".join(str(word) for word in facts["likes"])  # type: ignore[union-attr]
    sentence = f"{facts['name']}, {facts['age']}, lives in {facts['town']} and likes {likes}."
    keys = draw.several(rng, list(facts), 2, 4)
    answer = json_data.spell(rng, {key: facts[key] for key in keys})
    schema = None
    if rng.random() < 0.2:
        types = {"name": "string", "age": "integer", "town": "string", "likes": "array"}
        schema = {"type": "object", "properties": {key: {"type": types[key]} for key in keys}}
    ask = f"{sentence} Give me {', '.join(keys)} as JSON."
    return Chat([Exchange(ask, answer)], _system(rng), response_schema=schema)


def tool_use(rng: Random, _words: Vocabulary) -> Chat:
    """A sum or a weather report by a tool call."""
    thinking = rng.random() < 0.5
    if rng.random() < 0.5:
        a, b = rng.randint(100, 99_999), rng.randint(100, 99_999)
        call = Call("multiply", {"a": a, "b": b}, str(a * b))
        exchange = Exchange(
            f"{a} times {b}?", f"{a} × {b} = {a * b}", f"I multiply {a} by {b}.", call
        )
        tool = _tool("multiply", "The product of two integers.", a="integer", b="integer")
        return Chat([exchange], _system(rng), thinking, [tool])
    place, degrees = draw.town(rng), rng.randint(-20, 42)
    report = json.dumps({"town": place, "celsius": degrees})
    call = Call("weather", {"town": place, "day": draw.date(rng)}, report)
    exchange = Exchange(
        f"How warm is it in {place} on {call.arguments['day']}?",
        f"It is {degrees} degrees Celsius in {place}.",
        f"I look up {place}.",
        call,
    )
    tool = _tool("weather", "The weather of a town on a day.", town="string", day="string")
    return Chat([exchange], _system(rng), thinking, [tool])


def _tool(tool: str, description: str, **types: str) -> dict[str, object]:
    properties = {name: {"type": kind} for name, kind in types.items()}
    parameters = {"type": "object", "properties": properties, "required": list(types)}
    return {"name": tool, "description": description, "parameters": parameters}


def _exchange_count(rng: Random) -> int:
    return rng.choice((1, 1, 1, 1, 2, 3))


def _system(rng: Random) -> str:
    return rng.choice(_SYSTEMS) if rng.random() < 0.15 else ""


_CHATS: tuple[Callable[[Random, Vocabulary], Chat], ...] = (
    *(sums, story, about_list, python, extraction) * 4,
    tool_use,
)
