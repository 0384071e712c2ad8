"""What the fields of a configuration may hold, and what it is held against."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from engine import checks
from engine.choices import (
    AcceleratorKind,
    AdmissionMode,
    CacheFormat,
    GraphMode,
    KernelChoice,
    Precision,
    ReplayMode,
    WeightFormat,
)

if TYPE_CHECKING:
    from dataclasses import Field
    from enum import StrEnum


class ModelLimits(Protocol):
    """The facts of a model that configuration and requests are held against.

    `engine.models.protocol.ModelFacts` has them; `engine.config` may not import it.
    """

    @property
    def vocab_size(self) -> int: ...  # noqa: D102
    @property
    def max_positions(self) -> int: ...  # noqa: D102
    @property
    def eos_token_id(self) -> int: ...  # noqa: D102
    @property
    def window(self) -> int: ...  # noqa: D102
    @property
    def draft_block(self) -> int: ...  # noqa: D102
    @property
    def can_truncate(self) -> bool: ...  # noqa: D102
    @property
    def packs_rows(self) -> bool: ...  # noqa: D102


CHOICES: dict[str, type[StrEnum]] = {
    "dtype": Precision,
    "cache_format": CacheFormat,
    "weights": WeightFormat,
    "accelerator": AcceleratorKind,
    "replay_mode": ReplayMode,
    "admission": AdmissionMode,
    "kernels": KernelChoice,
    "graphs": GraphMode,
}
"""The fields that hold a member of an enumeration."""


def says(
    sentence: str, *, least: int | None = None, most: int | None = None
) -> dict[str, str | int | None]:
    """Metadata of a field: what it is, for people, and the range of a number."""
    return {"sentence": sentence, "least": least, "most": most}


def checked(f: Field, value: object) -> object:  # type: ignore[type-arg]
    """The value as the field holds it; ConfigError where it may not. Its default is fine."""
    name = f.name
    if value is None and f.default is None:
        return None
    if name == "model":
        return checks.text(name, value)
    if name in CHOICES:
        return checks.choice(name, value, CHOICES[name])
    if name == "memory_fraction":
        return checks.share(name, value)
    if isinstance(f.default, bool):
        return checks.truth(name, value)
    least, most = f.metadata["least"], f.metadata["most"]
    return checks.whole_number(name, value, least=least or 0, most=most)
