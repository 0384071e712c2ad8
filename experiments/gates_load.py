"""Gates on what the form of a load leaves to measure."""

from __future__ import annotations

from experiments.gate_parts import Evidence, verdict
from experiments.records import Gate


def rounds(evidence: Evidence) -> Gate | None:
    """A load in rounds left at least one to measure."""
    tally = evidence.measurement.tally
    if tally is None or tally.rounds is None:
        return None
    found, left_out = tally.rounds.measured, tally.rounds.left_out
    why = (
        "; in each, a request failed, or one ended before another had its first token: ask for "
        "longer outputs or fewer requests at once"
    )
    return verdict(
        "rounds",
        passed=found > 0,
        value=float(found),
        limit=1.0,
        message=f"{found} of {found + left_out} rounds could be measured" + ("" if found else why),
    )
