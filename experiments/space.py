"""From a plan to the points that it measures."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass

from experiments.arrival import arrival
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
from experiments.load_specs import ClosedLoad, Load, TraceLoad
from experiments.plan import Plan
from experiments.prepare import prepare
from experiments.records import AxisValue, Point, TrialId
from experiments.targets.base import Target, TargetFacts
from experiments.workload import Workload
from experiments.workload_specs import WorkloadSpec


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
        """Requests kept in flight; None in an open loop."""
        return self.load.batch_size if isinstance(self.load, ClosedLoad) else None

    @property
    def engine_key(self) -> str:
        """Trials of one key run on one started engine."""
        return json.dumps(self.point.engine, sort_keys=True)


@dataclass(frozen=True, kw_only=True)
class _Cell:
    """One combination of axis values, sorted into what each part reads."""

    axes: dict[str, AxisValue]
    engine: dict[str, AxisValue]
    spec: WorkloadSpec
    load: Load


def expand(plan: Plan, target: Target, *, code_version: str) -> list[PlannedTrial]:
    """Every trial of the plan, in the order in which it runs; at most `plan.max_trials`.

    All points are measured once before any is measured again, so that a host that grows slower
    slows every point. One pass runs the trials of one engine configuration together.
    Nothing is started; `target` answers for checkpoints and reads workload files. PlanError,
    WorkloadError, ConfigError or CheckpointError say what is wrong before anything runs.
    """
    expander = _Expander(plan, target, code_version)
    cells = expander.cells()
    shuffler = random.Random(plan.seed)
    ordered: list[PlannedTrial] = []
    for repeat in range(plan.repeat_count):
        once = [expander.trial(cell, repeat) for cell in cells]
        _refuse_duplicates(once, plan)
        ordered += once if plan.order == "as_written" else _blocked(once, shuffler)
    return ordered[: plan.max_trials]


def engine_starts(trials: list[PlannedTrial]) -> int:
    """How often an engine is started to run the trials in their order."""
    return sum(1 for _ in itertools.groupby(trials, key=lambda trial: trial.engine_key))


class _Expander:
    """The way from axes to trials; reads every workload and checkpoint once."""

    def __init__(self, plan: Plan, target: Target, code_version: str) -> None:
        self._plan = plan
        self._target = target
        self._code_version = code_version
        self._engine_names = engine_names()
        self._constraints = [Constraint(text) for text in plan.where]
        self._facts: dict[str, TargetFacts] = {}
        self._workloads: dict[str, Workload] = {}

    def cells(self) -> list[_Cell]:
        """The combinations that meet `where`."""
        check_names(self._plan)
        cells = [self._cell(axes) for axes in combinations(self._plan)]
        kept = [cell for cell in cells if self._meets(cell)]
        if not kept:
            raise PlanError(
                f"no point is left of {len(cells)}",
                where="where",
                remedy=f"Loosen {' and '.join(self._plan.where)}.",
            )
        return kept

    def trial(self, cell: _Cell, repeat: int) -> PlannedTrial:
        """One trial; the target holds the configuration against its model."""
        settings = self._target.settings(cell.engine)
        facts = self._described(settings)
        workload = self._prepared(cell.spec, settings, facts)
        if isinstance(cell.load, TraceLoad):
            arrival(cell.load, workload, count=self._plan.protocol.max_requests, salt="")
        load = cell.load.model_dump()
        asked = {**_flat(cell.spec), **workload.description(), "load": load.pop("kind"), **load}
        if self._plan.slo is not None:
            asked |= self._plan.slo.limits()
        point = Point(
            axes=cell.axes,
            engine=dict(facts.configuration),
            workload=asked,
            checkpoint=facts.fingerprint,
        )
        return PlannedTrial(
            trial_id=self._trial_id(point, repeat, facts),
            point=point,
            repeat=repeat,
            facts=facts,
            workload=workload,
            load=cell.load,
            salt=digest(self._plan.seed, workload.content_hash, cell.load.model_dump(), repeat),
        )

    def _trial_id(self, point: Point, repeat: int, facts: TargetFacts) -> TrialId:
        """Paths say where things are, not what they are: content stands in for them."""
        plan = self._plan
        return TrialId(
            digest(
                {k: v for k, v in point.engine.items() if k != "model"},
                {k: v for k, v in point.workload.items() if k != "path"},
                facts.fingerprint,
                repeat,
                plan.protocol.model_dump(),
                (plan.target, plan.simulation, plan.seed),
                self._code_version,
            )
        )

    def _cell(self, axes: dict[str, AxisValue]) -> _Cell:
        plan = self._plan
        spec = picked_workload(plan, axes)
        load = plan.load
        engine = dict(plan.engine)
        for name, value in axes.items():
            if name == WORKLOAD_AXIS:
                continue
            if name in self._engine_names:
                engine[name] = value
            elif name in fields_of(load):
                load = with_field(load, name, value)
            else:
                spec = with_field(spec, name, value)
        return _Cell(axes=axes, engine=engine, spec=spec, load=load)

    def _meets(self, cell: _Cell) -> bool:
        if not self._constraints:
            return True
        settings = self._target.settings(cell.engine)
        facts = self._described({"model": settings["model"]})
        values = {
            **_flat(cell.spec),
            **cell.load.model_dump(),
            **settings,
            **cell.axes,
            "window": facts.window,
            "draft_block": facts.draft_block,
            "max_positions": facts.max_positions,
            "max_backtrack": settings["max_backtrack_tokens"],
        }
        return all(constraint.holds(values) for constraint in self._constraints)

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


def _refuse_duplicates(trials: list[PlannedTrial], plan: Plan) -> None:
    seen: dict[TrialId, PlannedTrial] = {}
    for trial in trials:
        first = seen.setdefault(trial.trial_id, trial)
        if first is not trial:
            raise PlanError(
                f"the point {trial.point.axes} is the same configuration as {first.point.axes}",
                where=f"plan {plan.name}: axes",
                remedy="Take one of the two out.",
            )


def _blocked(trials: list[PlannedTrial], shuffler: random.Random) -> list[PlannedTrial]:
    """One block an engine configuration; blocks, and trials inside them, in seeded disorder."""
    blocks: dict[str, list[PlannedTrial]] = {}
    for trial in trials:
        blocks.setdefault(trial.engine_key, []).append(trial)
    keys = list(blocks)
    shuffler.shuffle(keys)
    for key in keys:
        shuffler.shuffle(blocks[key])
    return [trial for key in keys for trial in blocks[key]]
