"""Script-made JSON: records as programs exchange them, compact and indented."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random

from experiments.training import vocabulary as draw
from experiments.training.vocabulary import Vocabulary

Record = dict[str, object]
_CURRENCIES = ("EUR", "USD", "GBP", "JPY", "INR", "BRL")
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def documents(rng: Random, words: Vocabulary, count: int) -> Iterator[str]:
    """Yield `count` JSON documents: one record, or a short list of records of one make."""
    for _ in range(count):
        make = rng.choice(_MAKERS)
        if rng.random() < 0.3:
            value: object = [make(rng, words) for _ in range(rng.randint(2, 4))]
        else:
            value = make(rng, words)
        yield spell(rng, value)


def spell(rng: Random, value: object) -> str:
    """Write `value` in one of the usual styles: compact, spaced, two or four columns of indent."""
    indent = rng.choice((None, None, 2, 2, 4))
    separators = (",", ":") if indent is None and rng.random() < 0.5 else None
    return json.dumps(value, indent=indent, separators=separators, ensure_ascii=False)


def person(rng: Random, words: Vocabulary) -> Record:
    """Somebody with an address."""
    given, family = draw.person(rng)
    return {
        "id": rng.randint(1000, 9_999_999),
        "name": f"{given} {family}",
        "email": draw.email(rng, given, family),
        "born": draw.date(rng),
        "address": {
            "street": draw.address(rng),
            "town": draw.town(rng),
            "postcode": f"{rng.randint(10000, 99999)}",
        },
        "interests": draw.several(rng, words.nouns, 1, 4),
        "active": rng.random() < 0.7,
    }


def order(rng: Random, words: Vocabulary) -> Record:
    """An order whose total is the sum of its lines."""
    lines = []
    total_cents = 0
    for _ in range(rng.randint(1, 4)):
        quantity, cents = rng.randint(1, 24), rng.randint(99, 49_999)
        total_cents += quantity * cents
        lines.append(
            {
                "sku": draw.identifier(rng, 8).upper(),
                "title": draw.phrase(rng, words),
                "quantity": quantity,
                "price": cents / 100,
            }
        )
    return {
        "order": f"{rng.choice('ABCDEFGH')}-{rng.randint(10_000, 999_999)}",
        "customer": " ".join(draw.person(rng)),
        "placed": draw.timestamp(rng),
        "lines": lines,
        "total": total_cents / 100,
        "currency": rng.choice(_CURRENCIES),
    }


def configuration(rng: Random, words: Vocabulary) -> Record:
    """The settings of an invented service."""
    name = rng.choice(words.nouns)
    return {
        "service": f"{name}-{rng.choice(words.nouns)}",
        "listen": f"10.{rng.randint(0, 255)}.7.{rng.randint(1, 254)}:{rng.randint(1024, 65535)}",
        "workers": rng.randint(1, 64),
        "timeout_ms": rng.randint(100, 60_000),
        "database": {
            "host": f"{rng.choice(words.adjectives)}.{draw.town(rng).lower()}.example",
            "pool": rng.randint(2, 50),
            "user": rng.choice(words.nouns),
        },
        "features": {word: rng.random() < 0.5 for word in draw.several(rng, words.nouns, 2, 5)},
        "log": {"level": rng.choice(_LEVELS), "file": f"/var/log/{name}/{draw.date(rng)}.log"},
    }


def reply(rng: Random, words: Vocabulary) -> Record:
    """One page of an API reply, or its error."""
    request = draw.identifier(rng, 16)
    if rng.random() < 0.25:
        missing = draw.phrase(rng, words)
        return {
            "request": request,
            "error": {"code": rng.choice((400, 403, 404, 409, 429)), "message": f"no {missing}"},
        }
    items = [
        {
            "id": draw.identifier(rng, 8),
            "label": draw.phrase(rng, words),
            "score": round(rng.random(), 4),
        }
        for _ in range(rng.randint(1, 6))
    ]
    return {
        "request": request,
        "count": len(items),
        "items": items,
        "next": draw.identifier(rng, 20) if rng.random() < 0.5 else None,
    }


def event(rng: Random, words: Vocabulary) -> Record:
    """A line of a structured log."""
    return {
        "time": draw.timestamp(rng),
        "level": rng.choice(_LEVELS),
        "source": f"{rng.choice(words.nouns)}.{rng.choice(words.nouns)}",
        "message": f"{rng.choice(words.verbs)} {draw.phrase(rng, words)}",
        "trace": draw.identifier(rng, 16),
        "elapsed_ms": round(rng.expovariate(1 / 80), 2),
    }


def readings(rng: Random, words: Vocabulary) -> Record:
    """A sensor and what it measured."""
    start = rng.uniform(-20, 80)
    return {
        "sensor": f"{rng.choice(words.nouns)}-{rng.randint(1, 999)}",
        "position": {
            "lat": round(rng.uniform(-90, 90), 5),
            "lon": round(rng.uniform(-180, 180), 5),
        },
        "since": draw.timestamp(rng),
        "values": [round(start + rng.gauss(0, 3), 2) for _ in range(rng.randint(4, 16))],
    }


def schema(rng: Random, words: Vocabulary) -> Record:
    """A JSON schema of an invented object."""
    types = (
        {"type": "string", "maxLength": rng.randint(8, 400)},
        {"type": "integer", "minimum": rng.randint(0, 999)},
        {"type": "number"},
        {"type": "boolean"},
        {"type": "array", "items": {"type": "string"}},
        {"enum": draw.several(rng, words.adjectives, 2, 4)},
    )
    properties = {word: rng.choice(types) for word in draw.several(rng, words.nouns, 2, 5)}
    return {
        "title": rng.choice(words.nouns).capitalize(),
        "type": "object",
        "properties": properties,
        "required": draw.several(rng, list(properties), 1, 2),
    }


_MAKERS: tuple[Callable[[Random, Vocabulary], Record], ...] = (
    person,
    order,
    configuration,
    reply,
    event,
    readings,
    schema,
)
