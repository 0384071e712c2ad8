"""Every metric that a table of points may have: what trials hold, and what reading derives."""

from __future__ import annotations

from experiments import metric_specs
from experiments.metric_specs import MetricSpec
from workbench.cost import COST_METRICS
from workbench.foreign_metrics import FOREIGN_METRICS
from workbench.kernel_metrics import KERNEL_METRICS

METRICS: dict[str, MetricSpec] = {
    **metric_specs.METRICS,
    **FOREIGN_METRICS,
    **KERNEL_METRICS,
    **COST_METRICS,
}
"""By name, measured ones first."""
