"""Where documents become objects: strict pydantic models, and errors that name the field."""

from __future__ import annotations

from typing import get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from experiments.errors import PlanError
from kernels.near_names import nearest

MOST_SHOWN = 200
"""Characters of a wrong value that an error repeats."""


class Border(BaseModel):
    """A frozen document of known fields and exact types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def brief(value: object) -> str:
    """`value` as an error shows it: its repr, cut to 200 characters."""
    try:
        text = repr(value)
    except ValueError:  # a whole number of more digits than Python writes out
        return "a number of thousands of digits"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def explain(error: ValidationError, model: type[BaseModel], *, where: str) -> PlanError:
    """The first finding of pydantic as one sentence with the field's path and a remedy."""
    finding = error.errors()[0]
    path = _path(finding["loc"])
    place = f"{where}: {path}" if path else where
    if finding["type"] == "extra_forbidden":
        known = _fields_at(model, finding["loc"][:-1])
        return PlanError(
            "is no field of a plan", where=place, remedy=nearest(path_end(path), known)
        )
    if finding["type"] == "missing":
        return PlanError("is missing", where=place, remedy="Add the field.")
    return PlanError(_sentence(finding), where=place, remedy=_remedy(finding))


def path_end(path: str) -> str:
    """The last name of a dotted path."""
    return path.rsplit(".", 1)[-1]


def _path(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location)


def _sentence(finding: ErrorDetails) -> str:
    message = finding["msg"].removeprefix("Value error, ")
    if finding["type"] in ("value_error", "union_tag_not_found"):
        return message
    return f"{message[0].lower()}{message[1:]}, got {brief(finding['input'])}"


def _remedy(finding: ErrorDetails) -> str | None:
    if finding["type"].endswith("_type"):
        return "Write the value in that type (numbers without quotes, lists in brackets)."
    if finding["type"] == "union_tag_not_found":
        return "Add the field `kind`."
    return None


def _fields_at(model: type[BaseModel], location: tuple[int | str, ...]) -> set[str]:
    """Field names of the innermost model on the way; the union's tag picks its member."""
    current = {model}
    for part in location:
        inner = {
            found
            for one in current
            if isinstance(part, str) and part in one.model_fields
            for found in _models_in(one.model_fields[part].annotation)
        }
        tagged = {one for one in current if part in _tags(one)}
        current = inner or tagged or current
    return {name for one in current for name in one.model_fields}


def _models_in(annotation: object) -> set[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return {found for part in get_args(annotation) for found in _models_in(part)}


def _tags(model: type[BaseModel]) -> tuple[object, ...]:
    kind = model.model_fields.get("kind")
    return get_args(kind.annotation) if kind else ()
