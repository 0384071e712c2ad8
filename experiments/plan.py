"""A plan as people write it: YAML or a mapping, checked into one frozen object."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

import yaml
from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from experiments.arms import ARM_AXIS, Arm, TargetKind
from experiments.axis_blocks import AxisBlock
from experiments.border import MOST_SHOWN, Border, brief, explain
from experiments.errors import PlanError
from experiments.gate_limits import GateLimits, Slo
from experiments.load_specs import ClosedLoad, Load
from experiments.protocol import PROTOCOLS, Protocol, named_protocol
from experiments.records import AxisValue
from experiments.repeat_rule import RepeatRule, as_repeat_rule
from experiments.search_spec import SearchSpec
from experiments.targets.http_spec import HttpSpec
from experiments.targets.server_spec import ServerSpec
from experiments.workload_specs import WorkloadSpec, resolved_source


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


class Plan(Border):
    """A question and the points that answer it. Build with `load_plan`."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=80)
    question: str = ""
    target: TargetKind | Literal["arms"] = "in_process"
    simulation: dict[str, AxisValue] = Field(default_factory=dict)
    http: HttpSpec | None = None
    server: ServerSpec | None = None
    arms: dict[str, Arm] = Field(default_factory=dict)
    reference: str | None = None  # the arm that the others' answers are held against: the first
    clients: int = Field(default=1, ge=1, le=64)  # processes that send the load to a server
    protocol: Annotated[Protocol, BeforeValidator(named_protocol)] = PROTOCOLS["quick"]
    engine: dict[str, AxisValue] = Field(default_factory=dict)
    axes: list[AxisBlock] = Field(default_factory=list)
    workloads: list[WorkloadSpec] = Field(min_length=1)
    load: Load = ClosedLoad()
    where: Annotated[list[str], BeforeValidator(_as_list)] = Field(default_factory=list)
    repeats: Annotated[RepeatRule | None, BeforeValidator(as_repeat_rule)] = None
    """None: as often as the protocol says."""
    search: SearchSpec | None = None
    gates: GateLimits = GateLimits()
    slo: Slo | None = None
    seed: int = Field(default=0, ge=0)
    order: Literal["blocked", "as_written", "engine_by_engine"] = "blocked"
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
    def _arms_or_one_target(self) -> Self:
        if (self.target == "arms") != bool(self.arms):
            raise ValueError(
                "target: arms and the field arms (a name and its target each) go together"
            )
        if self.arms and (self.simulation or self.http or self.server):
            raise ValueError("simulation, http and server belong into an arm where a plan has arms")
        if self.reference is not None and self.reference not in self.arms:
            raise ValueError(f"reference names {brief(self.reference)}, which is none of the arms")
        if not self.arms:
            Arm.model_validate(self._own_arm())
        if self.clients > 1 and not any(arm.over_http for arm in self.all_arms.values()):
            raise ValueError("an engine in this process has one client: clients needs target: http")
        return self

    @field_validator("arms")
    @classmethod
    def _arms_have_names(cls, arms: dict[str, Arm]) -> dict[str, Arm]:
        for name in arms:
            if not name or len(name) > MOST_SHOWN:
                raise ValueError(f"{brief(name)} is no name of an arm")
        return arms

    @model_validator(mode="after")
    def _one_way_to_the_points(self) -> Self:
        if self.search is None:
            return self
        for name, given in (("axes", self.axes), ("repeats", self.repeats)):
            if given:
                raise ValueError(f"search and {name} exclude each other")
        if len(self.workloads) > 1:
            raise ValueError("a search has one workload")
        return self

    def arm_of(self, name: AxisValue) -> Arm:
        """The arm of that name, the fields that all arms share laid under its own.

        A plan without arms is one arm, whatever the name.
        """
        if self.arms:
            arm = self.arms[str(name)]
            return arm.model_copy(update={"engine": {**self.engine, **arm.engine}})
        return Arm.model_construct(**self._own_arm())  # validated with the plan

    def _own_arm(self) -> dict[str, Any]:
        """What a plan without arms says of its one target."""
        fields = Arm.model_fields.keys() & type(self).model_fields.keys()
        return {name: getattr(self, name) for name in fields}

    @property
    def all_arms(self) -> dict[str | None, Arm]:
        """Every arm by name; a plan without arms has one without a name."""
        return {name: self.arm_of(name) for name in self.arms or (None,)}

    @property
    def repeat_rule(self) -> RepeatRule:
        """How often every point is measured."""
        often = self.protocol.repeats
        return self.repeats if self.repeats is not None else RepeatRule(min=often, max=often)

    @property
    def varied(self) -> set[str]:
        """The names that axes or the search vary."""
        blocks = {name for block in self.axes for name in block.axes}
        blocks |= {ARM_AXIS} if self.arms else set()
        return blocks if self.search is None else {*self.search.over}

    def document(self) -> dict[str, Any]:  # a JSON document has no narrower type
        """The whole plan, defaults filled in, ready for JSON; `load_plan` reads it back."""
        return self.model_dump(mode="json")

    def with_engine(self, **fields: AxisValue) -> Plan:
        """The same plan with other fixed engine fields (`model` above all)."""
        return load_plan({**self.document(), "engine": {**self.engine, **fields}})


def load_plan(source: Path | Mapping[str, object], *, base_dir: Path | None = None) -> Plan:
    """Read a plan; workload files are looked up from `base_dir` (the plan's own folder).

    PlanError names the field and the remedy. Files are not opened yet; expanding the plan does.
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
    _refuse_unstorable(plan.document(), where)
    workloads = [resolved_source(workload, base_dir) for workload in plan.workloads]
    http = plan.http.located(base_dir) if plan.http is not None else None
    arms = {name: arm.located(base_dir) for name, arm in plan.arms.items()}
    reference = plan.reference or next(iter(arms), None)  # a stored mapping has no order
    found = {"workloads": workloads, "http": http, "arms": arms, "reference": reference}
    return plan.model_copy(update=found)


def _refuse_unstorable(value: object, where: str) -> None:
    """PlanError for half a character, and for a whole number beyond 64 bits: no field means one."""
    if isinstance(value, str) and any("\ud800" <= one <= "\udfff" for one in value):
        raise PlanError(f"is {brief(value)}, which is no text", where=where)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise PlanError(f"is {brief(value)}: no number of a plan is so large", where=where)
    if isinstance(value, list):
        for one in cast("list[object]", value):
            _refuse_unstorable(one, where)
    if isinstance(value, dict):
        for name, one in cast("dict[str, object]", value).items():
            _refuse_unstorable(name, where)
            _refuse_unstorable(one, f"{where}: {name}")


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
