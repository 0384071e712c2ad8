"""Statistics of the requests behind one stored trial, as other tools' files want them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from experiments.quantiles import needed_samples
from workbench.trial_columns import trial_columns

if TYPE_CHECKING:
    import pandas as pd

    from experiments.request_columns import RequestColumns
    from workbench.store import Run

Array = NDArray[np.float64]
MEASURED = ("ok", "invalid")
UNTOLD = "the stored requests do not tell which of them were measured"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One stored trial that was measured, and its requests."""

    run: Run
    document: Mapping[str, object]  # trial.json as judged

    @property
    def trial_id(self) -> str:
        """Its content hash, with the number of the attempt where it was retried."""
        return str(self.document["trial_id"])

    @property
    def point(self) -> Mapping[str, Mapping[str, object]]:
        """Axes, engine and workload."""
        return cast("Mapping[str, Mapping[str, object]]", self.document["point"])

    @property
    def labels(self) -> list[str]:
        """`indicative` and the like."""
        return [str(label) for label in cast("list[object]", self.document["labels"])]

    def value(self, metric: str) -> float | None:
        """A stored number; None where it could not be had."""
        found = self._metric(metric).get("value")
        return None if found is None else float(str(found))

    def reason(self, metric: str) -> str:
        """Why a number is missing."""
        return str(self._metric(metric).get("reason") or "not measured")

    @cached_property
    def columns(self) -> RequestColumns | None:
        """The requests that its latencies rest on; None where these cannot be told."""
        return trial_columns(self.run.folder / "trials" / self.trial_id, self.document)

    @cached_property
    def requests(self) -> pd.DataFrame:
        """Its measured requests, those that failed included, in the order of the workload."""
        found = self.run.requests(self.trial_id)
        return found[~found["warm_up"].astype(bool)].sort_values("index", kind="stable")

    def samples(self, family: str) -> Array:
        """Samples of a latency family; empty where they cannot be told."""
        return np.empty(0) if self.columns is None else self.columns.samples(family)

    def _metric(self, name: str) -> Mapping[str, object]:
        metrics = cast("Mapping[str, Mapping[str, object]]", self.document.get("metrics", {}))
        return metrics.get(name, {})


def measured(run: Run) -> list[Trial]:
    """The trials of a run that have numbers, in the order of their measurement."""
    return [
        Trial(run=run, document=document)
        for document in run.judged()
        if document.get("state") in MEASURED
    ]


def quantile(samples: Array, share: float) -> float | None:
    """None where the samples are too few for it, at whichever end it lies."""
    if len(samples) < needed_samples(max(share, 1 - share)):
        return None
    return float(np.quantile(samples, share))


def deviation(samples: Array) -> float | None:
    """The standard deviation of the samples; None of fewer than two."""
    return float(np.std(samples, ddof=1)) if len(samples) > 1 else None
