"""Whether two sides may be compared: what differs between them, told before any difference.

`block`: a delta would be of something else than what is compared, so it is refused unless the
name is accepted. `warn`: it may move the numbers. `note`: it is said, and expected to. A fact
that one side lacks is a warning; silence would be a claim.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from workbench.comparability_rules import BLOCKING, RULES, Rule, Severity, Side
from workbench.errors import UsageError
from workbench.figures_text import UNKNOWN, value_text
from workbench.grouping import LOAD_FIELDS

__all__ = ["BLOCKING", "Difference", "Severity", "Side", "differences"]

PLURALS = ("clocks", "labels", "prices", "threads", "variables")  # rules whose name is one
LENGTHS = {
    "prompt lengths": "workload.prompt_tokens",
    "output lengths": "workload.output_tokens",
}


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One fact in which two sides differ, or that one of them lacks."""

    name: str  # what `--accept` calls it
    a: str
    b: str
    severity: Severity
    sentence: str
    accepted: bool = False  # a block that was accepted by name

    @property
    def blocks(self) -> bool:
        """True where no delta may be shown."""
        return self.severity is Severity.BLOCK and not self.accepted


def differences(
    a: Side, b: Side, *, chosen: Collection[str] = (), accept: Collection[str] = ()
) -> tuple[Difference, ...]:
    """What differs, blocks first. `chosen` names settings that differ because they were asked to.

    UsageError where `accept` names nothing that could block.
    """
    _refuse_unknown(accept)
    rules = [rule for rule in RULES if rule.matters(a) or rule.matters(b)]
    untold = [rule for rule in rules if any(_is_untold(rule, side) for side in (a, b))]
    found = [_judged(rule, a, b) for rule in rules if rule not in untold]
    told = [one for one in found if one is not None]
    told = [_as_chosen(one) if one.name in chosen else one for one in told]
    told = [dataclasses.replace(one, accepted=one.name in accept) for one in told]
    told += [*_settings(a, b, chosen), *_origins(a, b, untold)]
    order = list(Severity)
    return tuple(sorted(told, key=lambda one: order.index(one.severity)))


def _is_untold(rule: Rule, side: Side) -> bool:
    """A fact that the file of another tool does not hold; of both sides silence is no agreement."""
    return side.imported and rule.read(side) is None


def _origins(a: Side, b: Side, untold: Sequence[Rule]) -> Iterator[Difference]:
    """One warning a side that was imported: whose it is, and what its file does not tell."""
    first, second = (_origin(side) for side in (a, b))
    for label, side, origin in (("A", a, first), ("B", b, second)):
        if side.imported:
            names = [rule.name.replace("_", " ") for rule in untold if _is_untold(rule, side)]
            names += [name for name, column in LENGTHS.items() if side.column(column) is None]
            yield Difference(
                name="origin", a=first, b=second, severity=Severity.WARN,
                sentence=f"{label} was {origin}, whose file does not tell: {', '.join(names)}; "
                "so these may differ.",
            )  # fmt: skip


def _origin(side: Side) -> str:
    origin = side.run.origin
    return "measured here" if origin is None else f"imported from {origin.get('tool')}"


def _judged(rule: Rule, a: Side, b: Side) -> Difference | None:
    first, second = rule.read(a), rule.read(b)
    if rule.same(first, second):
        return _dirty_on_both(rule, first)
    words = rule.name.replace("_", " ")
    missing = next((label for label, v in (("A", first), ("B", second)) if v is None), None)
    if missing is not None:
        why = _reason(a if missing == "A" else b, rule.name)
        sentence = f"The {words} of {missing} is not known{why}, so it may differ."
        severity = Severity.WARN
    else:
        verb = "differ" if rule.name in PLURALS else "differs"
        said = (_alone if rule.name == "labels" else _said)(first, second)
        sentence = f"The {words} {verb}: {said}; {rule.why}."
        severity = rule.severity
    return Difference(
        name=rule.name, a=_text(first), b=_text(second), severity=severity, sentence=sentence
    )


def _dirty_on_both(rule: Rule, value: object) -> Difference | None:
    """Equal facts are no difference, but equal uncommitted changes are worth a word."""
    if rule.name != "code_dirty" or value in (None, "clean"):
        return None
    sentence = "Both sides ran from a checkout with the same uncommitted changes."
    text = _text(value)
    return Difference(name=rule.name, a=text, b=text, severity=Severity.NOTE, sentence=sentence)


def _reason(side: Side, name: str) -> str:
    told = side.environment("reasons", name)
    return f" ({told})" if isinstance(told, str) else ""


def _as_chosen(found: Difference) -> Difference:
    """A setting that both sides were selected by is what is compared, not in its way."""
    if found.severity is not Severity.BLOCK:
        return found
    sentence = found.sentence.rstrip(".") + "; it was chosen to differ."
    return dataclasses.replace(found, severity=Severity.WARN, sentence=sentence)


def _settings(a: Side, b: Side, chosen: Collection[str]) -> list[Difference]:
    """Engine settings that differ, and what was chosen to: of the load it is a warning.

    A seed is none where both sides choose the likeliest token.
    """
    known = {rule.name for rule in RULES} | {"model"}
    columns = [str(c) for c in a.points.columns if str(c).startswith("engine.")]
    engine = dict.fromkeys(c.removeprefix("engine.") for c in columns if c in b.points)
    moves = LOAD_FIELDS - ({"seed"} if _is_greedy(a) and _is_greedy(b) else set())
    found = []
    for name in dict.fromkeys([*engine, *sorted(chosen)]):
        places = ("engine",) if name in engine else ("axis", "workload")
        first, second = (_setting(side, name, places) for side in (a, b))
        if name in known or first == second:
            continue
        words = "was chosen to differ" if name in chosen else "differs"
        found.append(
            Difference(
                name=name, a=_text(first), b=_text(second),
                severity=Severity.WARN if name in moves else Severity.NOTE,
                sentence=f"The setting {name} {words}: {_said(first, second)}.",
            )
        )  # fmt: skip
    return found


def _is_greedy(side: Side) -> bool:
    """Whether every token is the likeliest, so that no seed plays a part."""
    return side.column("workload.temperature") == [value_text(0.0)]


def _setting(side: Side, name: str, places: Sequence[str]) -> object:
    found = (side.column(f"{place}.{name}") for place in places)
    return next((values for values in found if values is not None), None)


def _refuse_unknown(accept: Collection[str]) -> None:
    for name in accept:
        if name not in BLOCKING:
            raise UsageError(
                f"{name!r} is nothing that blocks a comparison.",
                where="accept",
                remedy=f"Accept one of {', '.join(BLOCKING)}.",
            )


def _said(first: object, second: object) -> str:
    """Both values, of mappings only what differs."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        names = sorted({*first, *second}, key=str)
        apart = [name for name in names if first.get(name) != second.get(name)]
        return ", ".join(f"{n} {_text(first.get(n))} and {_text(second.get(n))}" for n in apart)
    return f"{_text(first)} and {_text(second)}"


def _alone(first: object, second: object) -> str:
    """Of two lists what one side has alone."""
    a, b = (list(each) if isinstance(each, Sequence) else [] for each in (first, second))
    found = [(label, [one for one in each if one not in other])
             for label, each, other in (("A", a, b), ("B", b, a))]  # fmt: skip
    return ", ".join(f"{label} alone has {_text(each)}" for label, each in found if each)


def _text(value: object) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(_text, value)) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_text(one)}" for name, one in value.items()) or "none"
    return UNKNOWN if value is None else value_text(value)
