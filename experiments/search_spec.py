"""How a plan asks for the best point: what to maximise, over what, within which limits."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from experiments.border import Border, brief
from experiments.records import AxisValue

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_LIMIT = re.compile(rf"\s*([A-Za-z_][A-Za-z0-9_]*)\s*(<=|>=|<|>)\s*({_NUMBER})\s*")
_HOLDS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le, "<": operator.lt, ">=": operator.ge, ">": operator.gt
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Limit:
    """`metric <= number`: what a point must meet to be a candidate."""

    metric: str
    sign: str
    bound: float

    def holds(self, value: float | None) -> bool:
        """False for a missing number: what is not known is not met."""
        return value is not None and _HOLDS[self.sign](value, self.bound)

    def excess(self, value: float) -> float:
        """How far beyond the limit, as a share of it; 0 or less inside."""
        beyond = value - self.bound if self.sign.startswith("<") else self.bound - value
        return beyond / abs(self.bound) if self.bound else beyond

    def __str__(self) -> str:
        return f"{self.metric} {self.sign} {self.bound:.15g}"


def limit(text: str) -> Limit:
    """ValueError for anything but `metric <= number` (or <, >=, >)."""
    found = _LIMIT.fullmatch(text)
    if found is None:
        raise ValueError(f"needs `metric <= number` (or <, >=, >), got {brief(text)}")
    return Limit(metric=found[1], sign=found[2], bound=float(found[3]))


class Span(Border):
    """Where one axis is searched: between two numbers, both included, or among choices.

    `log` searches ratios, not differences; None: where the ends are positive and 8 or more
    times apart.
    """

    low: int | float | None = None
    high: int | float | None = None
    log: bool | None = None
    choices: list[AxisValue] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if self.choices is not None:
            if self.low is not None or self.high is not None or self.log is not None:
                raise ValueError("has both choices and ends")
            if len(self.choices) < 2:
                raise ValueError("needs two choices or more; fix a single one under engine")
            if len({(type(one), one) for one in self.choices}) < len(self.choices):
                raise ValueError("names a choice twice")
            return self
        if self.low is None or self.high is None:
            raise ValueError("needs [low, high] or choices")
        if self.high <= self.low:
            raise ValueError(f"goes upwards: low < high, got [{self.low}, {self.high}]")
        if self.log and self.low <= 0:
            raise ValueError("log needs low > 0")
        return self

    @property
    def whole(self) -> bool:
        """Only whole numbers are tried."""
        return type(self.low) is int and type(self.high) is int

    @property
    def by_ratio(self) -> bool:
        """Whether ratios are searched."""
        if self.low is None or self.high is None or self.log is not None:
            return bool(self.log)
        return self.low > 0 and self.high / self.low >= 8

    @property
    def ends(self) -> tuple[AxisValue, AxisValue]:
        """The first and the last value."""
        return self.between[0], self.between[-1]

    @property
    def between(self) -> list[AxisValue]:
        """The choices, or the two ends."""
        return [self.low, self.high] if self.choices is None else self.choices


def _span(value: object) -> object:
    if isinstance(value, list | tuple):
        if len(value) != 2:
            raise ValueError(f"needs [low, high] or {{choices: [...]}}, got {brief(value)}")
        return {"low": value[0], "high": value[1]}
    return value


class SearchSpec(Border):
    """Look for the best point instead of measuring all; `trials` is a cap.

    optuna: a seeded TPE sampler that is told what was measured and which limits held. bisect:
    one axis of whole numbers; finds the largest value that meets every limit, which is the
    answer where the limits fail from some value on and the goal grows with it.
    """

    maximize: str | None = None
    minimize: str | None = None
    over: dict[str, Annotated[Span, BeforeValidator(_span)]] = Field(min_length=1)
    subject_to: list[str] = Field(default_factory=list)
    trials: int = Field(default=30, ge=1, le=10_000)
    method: Literal["optuna", "bisect"] = "optuna"

    @field_validator("subject_to")
    @classmethod
    def _are_limits(cls, texts: list[str]) -> list[str]:
        return [str(limit(text)) for text in texts]

    @model_validator(mode="after")
    def _can_be_asked(self) -> Self:
        if (self.maximize is None) == (self.minimize is None):
            raise ValueError("needs exactly one of maximize and minimize")
        if self.method == "bisect":
            spans = list(self.over.values())
            if len(spans) != 1 or not spans[0].whole:
                raise ValueError("bisect searches one axis between two whole numbers")
            if not self.subject_to:
                raise ValueError("bisect needs subject_to: without a limit its answer is the end")
        return self

    @property
    def goal(self) -> str:
        """The metric that is to be best."""
        return self.maximize or self.minimize or ""

    @property
    def limits(self) -> list[Limit]:
        """What a candidate meets."""
        return [limit(text) for text in self.subject_to]

    @property
    def metrics(self) -> list[str]:
        """Every metric that the search reads."""
        return [self.goal, *(one.metric for one in self.limits)]


def search_words(spec: SearchSpec) -> str:
    """The search in a sentence: `maximise X over batch_size 1 to 256 where TTFT ..., 30 trials`."""
    verb = "maximise" if spec.maximize is not None else "minimise"
    spans = [f"{name} {_span_words(span)}" for name, span in spec.over.items()]
    limits = f" where {' and '.join(spec.subject_to)}" if spec.subject_to else ""
    return (
        f"{verb} {spec.goal} over {', '.join(spans)}{limits}, "
        f"in at most {spec.trials} trials by {spec.method}"
    )


def _span_words(span: Span) -> str:
    if span.choices is not None:
        return f"in {', '.join(map(str, span.choices))}"
    return f"{span.low} to {span.high}"
