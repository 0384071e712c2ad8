"""A trial in one line, as it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.foreign_cpu import OTHER_WORK
from workbench.figures_headline import headline_of
from workbench.words import point_words

if TYPE_CHECKING:
    from experiments.records import TrialRecord


def trial_line(record: TrialRecord) -> str:
    """State, point, the rate that its load is about, and why it is not to be trusted."""
    axes = point_words(record.point.axes)
    busy = f"  [{OTHER_WORK}]" if OTHER_WORK in record.labels else ""
    reason = f"  ({record.reason})" if record.reason else ""
    return f"{record.state:<7} {axes}{_speed(record)}{_resent(record)}{busy}{reason}"


def _resent(record: TrialRecord) -> str:
    resent = record.metrics.get("resent_requests")
    count = 0 if resent is None else round(resent.value or 0)
    return f"  [{count} requests sent twice]" if count else ""


def _speed(record: TrialRecord) -> str:
    """The rate that its form of load is about; nothing where there is none."""
    prefill = headline_of(record.point.workload).y == "prefill_tok_s"
    rate = record.metrics.get("prefill_tok_s" if prefill else "output_tok_s")
    if rate is None or rate.value is None:
        return ""
    return f"  {rate.value:,.1f} {'prompt tok/s' if prefill else 'tok/s'}"
