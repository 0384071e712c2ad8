"""A plan as people write it: YAML or a mapping, checked into one frozen object."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from experiments.border import MOST_SHOWN, Border, brief, explain
from experiments.errors import PlanError
from experiments.gate_limits import GateLimits, Slo
from experiments.load_specs import ClosedLoad, Load
from experiments.protocol import PROTOCOLS, Protocol, named_protocol
from experiments.records import AxisValue
from experiments.workload_specs import WorkloadSpec, resolved_source


class AxisBlock(Border):
    """Axes that vary together: every combination (`product`) or side by side (`zip`)."""

    product: dict[str, list[AxisValue]] | None = None
    zip: dict[str, list[AxisValue]] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.product is None) == (self.zip is None):
            raise ValueError("needs exactly one of product and zip")
        for name, values in self.axes.items():
            if not values:
                raise ValueError(f"axis {name} has no value")
            if self.product and len({(type(v), v) for v in values}) < len(values):
                raise ValueError(f"axis {name} names a value twice")
        lengths = {name: len(values) for name, values in self.axes.items()}
        if self.zip is not None and len(set(lengths.values())) > 1:
            raise ValueError(f"zip needs lists of one length, got {lengths}")
        if not lengths:
            raise ValueError("names no axis")
        return self

    @property
    def axes(self) -> dict[str, list[AxisValue]]:
        """The lists by axis name, of either kind."""
        return (self.product if self.product is not None else self.zip) or {}


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


class Plan(Border):
    """A question and the points that answer it. Build with `load_plan`."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=80)
    question: str = ""
    target: Literal["in_process", "simulated"] = "in_process"
    simulation: dict[str, AxisValue] = Field(default_factory=dict)
    protocol: Annotated[Protocol, BeforeValidator(named_protocol)] = PROTOCOLS["quick"]
    engine: dict[str, AxisValue] = Field(default_factory=dict)
    axes: list[AxisBlock] = Field(default_factory=list)
    workloads: list[WorkloadSpec] = Field(min_length=1)
    load: Load = ClosedLoad()
    where: Annotated[list[str], BeforeValidator(_as_list)] = Field(default_factory=list)
    repeats: int | None = Field(default=None, ge=1)  # None: as the protocol says
    gates: GateLimits = GateLimits()
    slo: Slo | None = None
    seed: int = Field(default=0, ge=0)
    order: Literal["blocked", "as_written"] = "blocked"
    max_trials: int | None = Field(default=None, ge=1)
    locked: bool = False
    """True in a stored plan: it holds what the environment gave, which is not read again."""

    @field_validator("workloads")
    @classmethod
    def _names_differ(cls, workloads: list[WorkloadSpec]) -> list[WorkloadSpec]:
        names = [workload.name for workload in workloads]
        if len(set(names)) < len(names):
            raise ValueError(f"two workloads have one name: {', '.join(sorted(names))}")
        return workloads

    @model_validator(mode="after")
    def _simulation_has_a_target(self) -> Self:
        if self.simulation and self.target != "simulated":
            raise ValueError("simulation is only read with target: simulated")
        return self

    @property
    def repeat_count(self) -> int:
        """How often every point is measured."""
        return self.repeats if self.repeats is not None else self.protocol.repeats

    def document(self) -> dict[str, Any]:  # a JSON document has no narrower type
        """The whole plan, defaults filled in, ready for JSON; `load_plan` reads it back."""
        return self.model_dump(mode="json")

    def with_engine(self, **fields: AxisValue) -> Plan:
        """The same plan with other fixed engine fields (`model` above all)."""
        return load_plan({**self.document(), "engine": {**self.engine, **fields}})


def load_plan(source: Path | Mapping[str, object], *, base_dir: Path | None = None) -> Plan:
    """Read a plan; workload files are looked up from `base_dir` (the plan's own folder).

    PlanError names the field and the remedy. Files are not opened yet; `expand` reads them.
    """
    if isinstance(source, Path):
        return load_plan(_read_yaml(source), base_dir=base_dir or source.parent)
    where = f"plan {source.get('name', '')}".strip()
    if not source:
        raise PlanError("is empty", where=where, remedy="Give at least a name and one workload.")
    try:
        plan = Plan.model_validate(dict(source))
    except ValidationError as error:
        raise explain(error, Plan, where=where) from error
    workloads = [resolved_source(workload, base_dir) for workload in plan.workloads]
    return plan.model_copy(update={"workloads": workloads})


class _UniqueKeys(yaml.SafeLoader):
    """YAML where a key given twice is an error, not a silent loss of the first.

    Aliases are refused: a few lines of them unfold into more than any memory holds.
    """

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(
                problem="an alias (*name) is used; write the value out",
                problem_mark=self.peek_event().start_mark,
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {brief(key)} is given twice", problem_mark=key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


_NOT_YAML = (yaml.YAMLError, TypeError, ValueError, LookupError, AttributeError, OverflowError)
"""What PyYAML raises for wrong text, and for dates and numbers that Python does not have."""


def _read_yaml(path: Path) -> Mapping[str, object]:
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeys)
    except FileNotFoundError as error:
        raise PlanError(
            "there is no such plan",
            where=str(path),
            remedy="Write one with `workbench init`.",
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"cannot be read: {error}", where=str(path)) from error
    except RecursionError as error:
        raise PlanError("is nested too deeply", where=str(path)) from error
    except _NOT_YAML as error:
        raise PlanError(f"is not YAML: {str(error)[:MOST_SHOWN]}", where=str(path)) from error
    if document is None:
        raise PlanError(
            "is empty", where=str(path), remedy="Give at least a name and one workload."
        )
    if not isinstance(document, dict):
        raise PlanError("is not a mapping of fields", where=str(path))
    return document
