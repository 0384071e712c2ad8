"""What makes a trial valid: conditions with their values, so that a page can say why not.

The gate that rests on other trials of the run (`agreement`) is added by the workbench, when the
run is read.
"""

from __future__ import annotations

from collections.abc import Callable

from experiments.foreign_cpu import foreign_cpu
from experiments.gate_parts import Evidence
from experiments.gates_client import client_cpu, client_lag, client_processes
from experiments.gates_energy import energy_agreement
from experiments.gates_host import clocks, environment, foreign_processes, throttling
from experiments.gates_load import rounds
from experiments.gates_requests import (
    accounting,
    achieved_rate,
    cache_hit,
    enough_requests,
    error_rate,
    output_length,
    prompt_length,
    unique_prompts,
)
from experiments.gates_steady import littles_law, steady_state, warm_up, window_length
from experiments.records import Gate


def energy(evidence: Evidence) -> Gate | None:
    """Both ways to measure joules agree."""
    return energy_agreement(evidence.metrics, evidence.limits)


GATES: tuple[Callable[[Evidence], Gate | None], ...] = (
    accounting,
    client_processes,
    error_rate,
    enough_requests,
    rounds,
    output_length,
    prompt_length,
    unique_prompts,
    cache_hit,
    achieved_rate,
    client_lag,
    client_cpu,
    warm_up,
    window_length,
    littles_law,
    steady_state,
    throttling,
    clocks,
    foreign_processes,
    foreign_cpu,
    environment,
    energy,
)
"""In the order in which a failure is named: causes first. None: off, or no matter of the trial."""


def evaluate(evidence: Evidence) -> tuple[Gate, ...]:
    """Every gate that is on."""
    return tuple(gate for judge in GATES if (gate := judge(evidence)) is not None)


def first_failure(gates: tuple[Gate, ...]) -> str | None:
    """The sentence of the first gate that did not pass."""
    return next((f"{gate.name}: {gate.message}" for gate in gates if not gate.passed), None)
