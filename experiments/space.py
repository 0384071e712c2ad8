"""From a plan to the points that it measures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from experiments.arms import ARM_AXIS
from experiments.axes import (
    WORKLOAD_AXIS,
    check_names,
    combinations,
    engine_names,
    fields_of,
    picked_workload,
    with_field,
)
from experiments.constraint import Constraint
from experiments.errors import PlanError
from experiments.identity import digest
from experiments.load_checks import check_clients, check_load, load_facts, shaped
from experiments.load_specs import Load
from experiments.plan import Plan
from experiments.prepare import prepare
from experiments.records import AxisValue, Point, TrialId
from experiments.targets.base import Target, TargetFacts
from experiments.workload import Workload
from experiments.workload_specs import WorkloadSpec

LOCATIONS = ("path", "set")
"""Fields of a workload that say where its content is; its hash says what it is."""


@dataclass(frozen=True, kw_only=True)
class PlannedTrial:
    """One point to measure once, with everything that its measurement needs."""

    trial_id: TrialId
    point: Point
    repeat: int
    facts: TargetFacts
    workload: Workload
    load: Load
    salt: str
    """Keys the content: trials that share an engine never share a prompt, while engine
    configurations are asked the same, so that they can be compared request by request."""

    @property
    def batch_size(self) -> int | None:
        """Requests that the load keeps in flight at most; None in an open loop."""
        return self.load.slots

    @property
    def engine_key(self) -> str:
        """Trials of one key run on one started engine."""
        return json.dumps(self.point.engine, sort_keys=True)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One combination of axis values, sorted into what each part reads."""

    axes: dict[str, AxisValue]
    engine: dict[str, AxisValue]
    spec: WorkloadSpec
    load: Load


class Space:
    """The way from axis values to trials; reads every workload and checkpoint once.

    Nothing is started; `target` answers for checkpoints and reads workload files. PlanError,
    WorkloadError, ConfigError or CheckpointError say what is wrong.
    """

    def __init__(self, plan: Plan, target: Target, code_version: str) -> None:
        check_names(plan)
        self.plan = plan
        self._target = target
        self._code_version = code_version
        self._engine_names = engine_names(plan)
        self._conditional = {
            name for block in plan.axes if block.when is not None for name in block.axes
        }
        self._where = [Constraint(text) for text in plan.where]
        self._when = {
            block.when: Constraint(block.when, "axes.when")
            for block in plan.axes
            if block.when is not None
        }
        self._facts: dict[str, TargetFacts] = {}
        self._workloads: dict[str, Workload] = {}

    def points(self) -> tuple[list[PlannedTrial], tuple[str, ...]]:
        """The first repeat of every point that meets `where`, as the plan writes them; notes.

        Two equal points are refused, unless they differ in conditional axes only: then they are
        one, and a note says so.
        """
        found: dict[TrialId, tuple[Cell, PlannedTrial]] = {}
        notes: list[str] = []
        for cell in self._cells():
            trial = self.trial(cell)
            first, _ = found.setdefault(trial.trial_id, (cell, trial))
            if first is not cell:
                notes.append(self._merged(cell, first))
        return [trial for _, trial in found.values()], tuple(notes)

    def cell(self, axes: dict[str, AxisValue]) -> Cell:
        """One combination; PlanError for a value that its field refuses."""
        plan = self.plan
        spec = picked_workload(plan, axes)
        load = plan.load
        engine = dict(plan.arm_of(axes.get(ARM_AXIS)).engine)
        for name, value in axes.items():
            if name == WORKLOAD_AXIS:
                continue
            if name in self._engine_names:
                engine[name] = value
            elif name in fields_of(load):
                load = with_field(load, name, value)
            else:
                spec = with_field(spec, name, value)
        return Cell(axes=axes, engine=engine, spec=shaped(spec, load), load=load)

    def meets(self, cell: Cell) -> bool:
        """Whether `where` keeps the point."""
        if not self._where:
            return True
        values = self._values(cell)
        return all(constraint.holds(values) for constraint in self._where)

    def trial(self, cell: Cell) -> PlannedTrial:
        """The first repeat of one point; the target holds the configuration against its model."""
        settings = self._target.settings(cell.engine)
        facts = self._described(settings)
        workload = self._prepared(cell.spec, settings, facts)
        check_load(cell.load, workload, facts)
        if facts.remote:
            check_clients(cell.load, self.plan.clients)
        asked = {
            **_flat(cell.spec),
            **workload.description(),
            **load_facts(cell.load, workload),
        }
        if self.plan.slo is not None:
            asked |= self.plan.slo.limits()
        point = Point(
            axes={**cell.axes, **self._kept(cell, facts)},
            engine=dict(facts.configuration),
            workload=asked,
            checkpoint=facts.fingerprint,
        )
        first = PlannedTrial(
            trial_id=TrialId(""),
            point=point,
            repeat=0,
            facts=facts,
            workload=workload,
            load=cell.load,
            salt="",
        )
        return self.again(first, 0)

    def again(self, trial: PlannedTrial, repeat: int) -> PlannedTrial:
        """Another repeat of the same point: its own id, and content of its own."""
        load = trial.load.model_dump()
        return replace(
            trial,
            repeat=repeat,
            trial_id=self._trial_id(trial.point, repeat, trial.facts),
            salt=digest(self.plan.seed, trial.workload.content_hash, load, repeat),
        )

    def _cells(self) -> list[Cell]:
        cells = [self.cell(axes) for axes in combinations(self.plan, self._applies)]
        kept = [cell for cell in cells if self.meets(cell)]
        if not kept:
            raise PlanError(
                f"no point is left of {len(cells)}",
                where="where",
                remedy=f"Loosen {' and '.join(self.plan.where)}.",
            )
        return kept

    def _applies(self, when: str, axes: dict[str, AxisValue]) -> bool:
        return self._when[when].holds(self._values(self.cell(axes)))

    def _kept(self, cell: Cell, facts: TargetFacts) -> dict[str, AxisValue]:
        """Of the conditional axes that the point lacks, the values that hold for it."""
        lacking = sorted(self._conditional - cell.axes.keys())
        values = {**_flat(cell.spec), **cell.load.model_dump(), **facts.configuration}
        return {name: values[name] for name in lacking if name in values}

    def _merged(self, cell: Cell, first: Cell) -> str:
        """The note on two equal points; PlanError where no condition explains them."""
        names = cell.axes.keys() | first.axes.keys()
        apart = {name for name in names if cell.axes.get(name) != first.axes.get(name)}
        if not apart or not apart <= self._conditional:
            raise PlanError(
                f"the point {cell.axes} is the same configuration as {first.axes}",
                where=f"plan {self.plan.name}: axes",
                remedy="Take one of the two out.",
            )
        return f"the point {cell.axes} is the same as {first.axes} and is measured once"

    def _trial_id(self, point: Point, repeat: int, facts: TargetFacts) -> TrialId:
        """Paths say where things are, not what they are: content stands in for them, if known."""
        plan = self.plan
        arm = plan.arm_of(point.engine.get(ARM_AXIS))
        asked = (*arm.identity(), plan.seed)
        if arm.over_http:
            asked = (*asked, facts.tokenizer_hash, plan.clients)
        return TrialId(
            digest(
                {k: v for k, v in point.engine.items() if k != "model" or arm.http is not None},
                {k: v for k, v in point.workload.items() if k not in LOCATIONS},
                facts.fingerprint,
                repeat,
                plan.protocol.model_dump(),
                asked,
                self._code_version,
            )
        )

    def _values(self, cell: Cell) -> dict[str, AxisValue]:
        """What a condition may name."""
        settings = self._target.settings(cell.engine)
        named = {k: settings[k] for k in (ARM_AXIS, "model") if k in settings}
        facts = self._described(named)
        return {
            **_flat(cell.spec),
            **cell.load.model_dump(),
            **settings,
            **cell.axes,
            "window": facts.window,
            "draft_block": facts.draft_block,
            "max_positions": facts.max_positions,
            "max_backtrack": settings.get("max_backtrack_tokens"),
        }

    def _described(self, settings: Mapping[str, AxisValue]) -> TargetFacts:
        key = json.dumps(settings, sort_keys=True)
        if key not in self._facts:
            self._facts[key] = self._target.describe(settings)
        return self._facts[key]

    def _prepared(
        self, spec: WorkloadSpec, settings: Mapping[str, AxisValue], facts: TargetFacts
    ) -> Workload:
        key = digest(spec.model_dump(), facts.fingerprint, facts.max_positions)
        if key not in self._workloads:
            self._workloads[key] = prepare(
                spec, facts, lambda text: self._target.encode(settings, text)
            )
        return self._workloads[key]


def _flat(spec: WorkloadSpec) -> dict[str, AxisValue]:
    return {
        name: ", ".join(value) if isinstance(value, list) else value
        for name, value in spec.model_dump().items()
    }
