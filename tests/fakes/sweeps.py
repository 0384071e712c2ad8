"""Simulated engines that fail by rule, jitter by content, and count how often they were started."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from engine.request import Request
from experiments.clock import VirtualClock
from experiments.errors import TargetCapacityError, TargetError
from experiments.observe import NoObserver
from experiments.outcome import Outcome, outcome_of
from experiments.plan import Plan, load_plan
from experiments.records import AxisValue, TrialId, TrialRecord
from experiments.sweep import Supervision, expanded, measure
from experiments.targets.base import TargetFacts
from experiments.targets.simulated import SimulatedTarget
from experiments.targets.simulated_profile import SimulatedProfile
from experiments.trial import Bench

Engine = Mapping[str, AxisValue]
SYNTHETIC = {"name": "s", "kind": "synthetic", "prompt_tokens": 8, "output_tokens": 4}
BASE = {
    "name": "t",
    "target": "simulated",
    "workloads": [SYNTHETIC],
    "protocol": {"name": "quick", "measured_s": 0.02, "warm_up_per_slot": 0},
}


def plan_of(**fields: object) -> Plan:
    """A small plan on the simulated target."""
    return load_plan({**BASE, **fields})


@dataclasses.dataclass
class Rules:
    """What goes wrong, as a function of the configuration and of the requests in flight."""

    refuses_start: Callable[[Engine], Exception | None] = lambda _: None
    dies: Callable[[Engine, int], bool] = lambda *_: False
    capacity: Callable[[Engine], int | None] = lambda _: None
    jitter: float = 0.0  # of the time a token takes, by what is asked
    deaths_left: int | None = None  # None: it dies as often as the rule says
    opened: int = 0
    closed: int = 0
    engines: list[Engine] = dataclasses.field(default_factory=list)


class RuledTarget(SimulatedTarget):
    """Serves by the profile until a rule ends it. What one request costs depends on it alone."""

    def __init__(self, rules: Rules, clock: VirtualClock) -> None:
        super().__init__(SimulatedProfile(), clock)
        self._rules = rules
        self._engine: Engine = {}

    def open(self, engine: Engine) -> TargetFacts:
        """Counted."""
        self._rules.opened += 1
        self._rules.engines.append(engine)
        refusal = self._rules.refuses_start(engine)
        if refusal is not None:
            raise refusal
        self._engine = engine
        return super().open(engine)

    def submit(self, request: Request) -> None:
        """Dies, or finds no room, where the rules say so."""
        rules, flying = self._rules, len(self._live) + 1
        if rules.dies(self._engine, flying) and rules.deaths_left != 0:
            if rules.deaths_left is not None:
                rules.deaths_left -= 1
            raise TargetError(f"the engine died with {flying} in flight")
        room = rules.capacity(self._engine)
        if room is not None and flying > room:
            raise TargetCapacityError(f"there is room for {room} requests")
        share = (sum(request.prompt_token_ids) % 97) / 97
        self._profile = dataclasses.replace(
            SimulatedProfile(), tpot_s=0.005 * (1 + rules.jitter * share)
        )
        super().submit(request)

    def close(self) -> None:
        """Counted."""
        self._rules.closed += 1
        super().close()


def sweep(
    plan: Plan,
    rules: Rules | None = None,
    *,
    told: Mapping[TrialId, Outcome] | None = None,
    supervision: Supervision | None = None,
    clock: VirtualClock | None = None,
):
    """The records of the plan, one by one."""
    used, clock = rules or Rules(), clock or VirtualClock()

    def factory() -> RuledTarget:
        return RuledTarget(used, clock)

    bench = Bench(plan=plan, clock=clock, observer=NoObserver())
    agenda = expanded(plan, factory, code_version="v1")
    return measure(agenda, factory, bench, told=told or {}, supervision=supervision)


def told_by(records: list[TrialRecord]) -> dict[TrialId, Outcome]:
    """What a resumed sweep is told of stored records."""
    return {record.trial_id: outcome_of(record) for record in records}


def essence(record: TrialRecord) -> tuple[object, ...]:
    """What may not differ between a sweep in one piece and one that was resumed."""
    values = {name: metric.value for name, metric in record.metrics.items()}
    return record.trial_id, record.state, record.reason, record.failure, record.attempts, values
