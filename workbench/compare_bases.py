"""What the numbers of two sides rest on where another tool measured one of them.

A metric of the catalogue is told by another tool only where it means the same; how it came by the
number stands in its basis. What only one side tells is listed, never filled in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.arms import Arm
from workbench.catalogue import METRICS

if TYPE_CHECKING:
    import pandas as pd

BY_DRAFT = ("acceptance_rate", "acceptance_p", "acceptance_c")  # fall with the draft length
HERE = "measured here: {definition}"
USUAL = frozenset(
    {
        *("output_tok_s_device", "tok_s_user", "tok_s_user_p1", "ttft_s_p50", "ttft_s_p99"),
        *("tpot_s_p50", "tpot_s_p99", "itl_s_p99", "e2e_s_p50", "e2e_s_p99", "goodput"),
        *("acceptance_length", "energy_j_token"),
    }
)
"""Metrics of our own whose absence in another tool's result is worth a word."""


def shared_metrics(a: Arm, b: Arm) -> tuple[str, ...]:
    """The metrics with a better side that both tell at some point, in the catalogue's order."""
    return tuple(
        name
        for name, spec in METRICS.items()
        if spec.direction != "none"
        and _tells(a, name)
        and _tells(b, name)
        and not name.startswith(BY_DRAFT)
    )


def bases_table(a: Arm, b: Arm, metrics: tuple[str, ...]) -> pd.DataFrame:
    """metric, label, a, b: the first basis of either side; empty where both measured here."""
    import pandas as pd

    imported = a.run.origin is not None or b.run.origin is not None
    told = [(name, _basis(a, name), _basis(b, name)) for name in (metrics if imported else ())]
    rows = [
        (name, METRICS[name].label, first, "the same" if second == first else second)
        for name, first, second in told
    ]
    return pd.DataFrame(rows, columns=["metric", "label", "a", "b"])


def apart_table(a: Arm, b: Arm, metrics: tuple[str, ...]) -> pd.DataFrame:
    """label, why: the metrics with a better side that one side tells and the other does not.

    Those that only a run of the workbench has are left out: they say nothing of the other tool.
    """
    import pandas as pd

    sides = {"A": a, "B": b}
    rows = [
        (spec.label, f"only {label} tells it ({_basis(sides[label], name)}); {_why(other, name)}")
        for name, spec in METRICS.items()
        if name not in metrics and spec.direction != "none"
        for label, other in (("A", b), ("B", a))
        if sides[label].run.origin is not None
        and _tells(sides[label], name)
        and not _tells(other, name)
    ]
    rows += [
        (spec.label, f"only {label} tells it; {other_label}, {_why(sides[other_label], name)}")
        for name, spec in METRICS.items()
        if name not in metrics and name in USUAL
        for label, other_label in (("A", "B"), ("B", "A"))
        if sides[label].run.origin is None
        and sides[other_label].run.origin is not None
        and _tells(sides[label], name)
    ]
    return pd.DataFrame(rows, columns=["label", "why"])


def _tells(arm: Arm, metric: str) -> bool:
    return metric in arm.points and bool(arm.points[metric].notna().any())


def _basis(arm: Arm, metric: str) -> str:
    name = f"{metric}.basis"
    told = arm.points[name].dropna() if name in arm.points else ()
    return next(iter(told), HERE.format(definition=METRICS[metric].definition))


def _why(arm: Arm, metric: str) -> str:
    name = f"{metric}.reason"
    told = arm.points[name].dropna() if name in arm.points else ()
    return next(iter(told), "the file has no number that means it")
