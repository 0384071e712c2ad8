"""Names and values for script-made records and chats: a wide range, so that text seldom repeats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_GIVEN = _words(
    "Ada Alan Amina Anders Anita Aroha Bella Bo Carla Chen Dana Diego Elif Emil Esra Eva Farid "
    "Femi Freya Gita Goran Grace Hana Hugo Ines Ivan Jana Jonas Julia Kai Kofi Lars Leila Lena "
    "Liam Lucia Malik Mara Marta Mateo Mei Mina Nadia Nils Noor Olga Omar Otto Paula Pia Priya "
    "Rafael Rosa Ruben Sami Sara Sofia Sven Tariq Tessa Tomas Uma Vera Viktor Wanda Yara Yusuf Zoe"
)
_ONSETS = _words("b br c ch d dr f fl g gr h j k kl l m n p pr qu r s sh st t th tr v w z")
_VOWELS = _words("a e i o u ai ea ei ou")
_CODAS = _words("l n r s t ck nd rt sen son ton man ler ner sky vic dez lin")
_TOWN_ENDS = _words("ville burg ford haven port field mouth ham stad mere")
_STREETS = _words("Street Road Lane Avenue Square Close")
_DOMAINS = _words("example.com example.org example.net")


@dataclass(frozen=True)
class Vocabulary:
    """Single-word lemmas, sorted, of at least three letters."""

    nouns: tuple[str, ...]
    adjectives: tuple[str, ...]
    verbs: tuple[str, ...]


def surname(rng: Random) -> str:
    """An invented family name of two or three syllables."""
    first = rng.choice(_ONSETS) + rng.choice(_VOWELS)
    middle = rng.choice(_ONSETS) + rng.choice(_VOWELS) if rng.random() < 0.5 else ""
    return (first + middle + rng.choice(_CODAS)).capitalize()


def person(rng: Random) -> tuple[str, str]:
    """A given name and a family name."""
    return rng.choice(_GIVEN), surname(rng)


def town(rng: Random) -> str:
    """An invented town."""
    start = rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice("lnrt")
    return (start + rng.choice(_TOWN_ENDS)).capitalize()


def address(rng: Random) -> str:
    """A house number, an invented street and its kind."""
    return f"{rng.randint(1, 399)} {surname(rng)} {rng.choice(_STREETS)}"


def email(rng: Random, given: str, family: str) -> str:
    """An address in a domain reserved for examples (RFC 2606)."""
    local = rng.choice((f"{given}.{family}", f"{given[0]}{family}{rng.randint(1, 99)}"))
    return f"{local.lower()}@{rng.choice(_DOMAINS)}"


def date(rng: Random) -> str:
    """A day between 1990 and 2029, ISO 8601."""
    return f"{rng.randint(1990, 2029)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"


def timestamp(rng: Random) -> str:
    """An instant in UTC, ISO 8601."""
    clock = f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}:{rng.randint(0, 59):02d}"
    return f"{date(rng)}T{clock}Z"


def identifier(rng: Random, digits: int = 12) -> str:
    """A random hexadecimal identifier."""
    return f"{rng.getrandbits(4 * digits):0{digits}x}"


def phrase(rng: Random, words: Vocabulary) -> str:
    """An adjective and a noun."""
    return f"{rng.choice(words.adjectives)} {rng.choice(words.nouns)}"


def several(rng: Random, choices: Sequence[str], least: int, most: int) -> list[str]:
    """Between `least` and `most` different entries."""
    return rng.sample(choices, rng.randint(least, most))
