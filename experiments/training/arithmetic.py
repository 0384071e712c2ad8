"""Arithmetic questions with their working, column by column as at school."""

from __future__ import annotations

from random import Random

from experiments.training import vocabulary as draw
from experiments.training.chat_format import Exchange
from experiments.training.vocabulary import Vocabulary


def sum_question(rng: Random) -> Exchange:
    """One of the four operations: no negative result, no division with a rest."""
    top = 10 ** rng.randint(1, 4)
    a, b = rng.randint(1, top), rng.randint(1, top)
    operation = rng.choice("+-*/")
    if operation == "+":
        answer, working = a + b, addition_steps(a, b)
    elif operation == "-":
        a, b = max(a, b), min(a, b)
        answer, working = a - b, f"{b} + {a - b} = {a}, so {a} - {b} = {a - b}"
    elif operation == "*":
        b = b % 100 + 1
        answer, working = a * b, multiplication_steps(a, b)
    else:
        b = b % 100 + 1
        a, answer = a * b, a
        working = f"{b} * {answer} = {a}, so {a} / {b} = {answer}"
    ask = rng.choice(
        ("What is {} {} {}?", "{} {} {} =", "Compute {} {} {}.", "How much is {} {} {}?")
    )
    said = rng.choice(("{4}", "{0} {1} {2} = {4}", "{3}. The answer is {4}."))
    return Exchange(
        ask.format(a, operation, b), said.format(a, operation, b, working, answer), thought=working
    )


def addition_steps(a: int, b: int) -> str:
    """The columns of a + b from the right, each with its carry."""
    steps, carry, total = [], 0, a + b
    left, right = a, b
    while left or right:
        column = left % 10 + right % 10 + carry
        carried = f" + {carry}" if carry else ""
        steps.append(f"{left % 10} + {right % 10}{carried} = {column}")
        carry, left, right = column // 10, left // 10, right // 10
    return ", ".join(steps) + f", so {a} + {b} = {total}"


def multiplication_steps(a: int, b: int) -> str:
    """a * b as the sum of a times each digit of b."""
    powers = [(int(digit), 10**place) for place, digit in enumerate(reversed(str(b)))]
    parts = [(digit * power, a * digit * power) for digit, power in powers if digit]
    steps = [f"{a} * {factor} = {product}" for factor, product in parts]
    if len(parts) > 1:
        steps.append(" + ".join(str(product) for _, product in parts) + f" = {a * b}")
    return ", ".join(steps)


def story_question(rng: Random, words: Vocabulary) -> Exchange:
    """A word problem: a stock that grows or shrinks twice, or is shared."""
    name, noun = draw.person(rng)[0], rng.choice(words.nouns)
    a, b, c = rng.randint(50, 999), rng.randint(2, 49), rng.randint(2, 99)
    if rng.random() < 0.4:
        ask = (
            f"{name} fills {b} boxes with {c} {noun} cards each and keeps {a} more. "
            "How many cards are there?"
        )
        working = f"{b} * {c} = {b * c}, {b * c} + {a} = {a + b * c}"
        return Exchange(ask, f"{working}. There are {a + b * c} cards.", thought=working)
    place = draw.town(rng)
    ask = (
        f"{name} has {a} {noun} stamps, gives away {b} in {place} and then buys {c}. "
        f"How many has {name} now?"
    )
    working = f"{a} - {b} = {a - b}, {a - b} + {c} = {a - b + c}"
    return Exchange(ask, f"{working}. {name} has {a - b + c} stamps.", thought=working)
