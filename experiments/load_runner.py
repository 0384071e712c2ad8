"""Who sends the load of a trial: this process, or clients that are processes of their own."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from experiments.arrival import WHOLE
from experiments.calibration import calibrate
from experiments.clients import ClientPool
from experiments.clock import Clock
from experiments.load import LoadGenerator, PhaseOf, PhaseResult
from experiments.records import Calibration
from experiments.targets.base import Target


@runtime_checkable
class SendsByClients(Protocol):
    """A target whose load is sent by client processes, while it is open."""

    clients: ClientPool | None
    calibrations: dict[str, Calibration]  # of them, by the shape of a load


class LoadRunner(Protocol):
    """Runs phases of load for one trial. Times count from the trial's origin."""

    def now_s(self) -> float:
        """Seconds since the origin."""
        ...

    def run(self, phase_of: PhaseOf) -> PhaseResult:
        """Run a phase to its end. TargetError passes through."""
        ...

    def calibrate(self, phase_of: PhaseOf, shape: str) -> Calibration | None:
        """What this client does on a server that answers at once, measured once a `shape`.

        None where the load has no process of its own.
        """
        ...


def load_runner(target: Target, clock: Clock, origin_ns: int) -> LoadRunner:
    """The runner that an open target asks for."""
    if isinstance(target, SendsByClients) and target.clients is not None:
        return _Clients(target.clients, target.calibrations, clock, origin_ns)
    return _ThisProcess(target, clock, origin_ns)


class _ThisProcess:
    def __init__(self, target: Target, clock: Clock, origin_ns: int) -> None:
        self._generator = LoadGenerator(target, clock, origin_ns)

    def now_s(self) -> float:
        return self._generator.now_s()

    def run(self, phase_of: PhaseOf) -> PhaseResult:
        return self._generator.run(phase_of(WHOLE))

    def calibrate(self, phase_of: PhaseOf, shape: str) -> Calibration | None:
        return None


class _Clients:
    def __init__(
        self, pool: ClientPool, known: dict[str, Calibration], clock: Clock, origin_ns: int
    ) -> None:
        self._known = known
        self._pool = pool
        self._clock = clock
        self._origin_ns = origin_ns

    def now_s(self) -> float:
        return (self._clock.now_ns() - self._origin_ns) / 1e9

    def run(self, phase_of: PhaseOf) -> PhaseResult:
        return self._pool.run(phase_of, self._origin_ns, self._clock.now_ns)

    def calibrate(self, phase_of: PhaseOf, shape: str) -> Calibration | None:
        if shape not in self._known:
            self._known[shape] = calibrate(self._pool, phase_of, self._clock)
        return self._known[shape]
