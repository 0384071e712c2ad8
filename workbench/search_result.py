"""The answer of a stored search, derived from its trials: nothing else is kept of it."""

from __future__ import annotations

from experiments.metric_specs import METRICS
from experiments.records import AxisValue, TrialId
from experiments.search_spec import SearchSpec, search_words
from experiments.search_verdict import SearchVerdict, Tried, broken, excess, verdict
from workbench.figures_text import value_text
from workbench.outcomes import outcome_in
from workbench.stored_run import Run
from workbench.words import point_words


def search_verdict(run: Run) -> SearchVerdict | None:
    """What the search of a run has found so far; None where its plan has none."""
    document = run.plan.get("search")
    if not isinstance(document, dict):
        return None
    spec = SearchSpec.model_validate(document)
    tried = [
        Tried(trial_id=TrialId(str(item["trial_id"])), axes=_axes(item), outcome=outcome_in(item))
        for item in run.judged()
    ]
    return verdict(spec, tried)


def beyond_limits(run: Run) -> dict[str, str]:
    """Trial id -> the limits of the run's search that it breaks; {} where there is none."""
    found = search_verdict(run)
    if found is None:
        return {}
    told = {str(one.trial_id): broken(found.spec, one) for one in found.tried_trials}
    return {name: " and ".join(limits) for name, limits in told.items() if limits}


def beyond_lines(beyond: dict[str, str]) -> list[str]:
    """What the mark of a table stands for, a line for each way to break the limits."""
    ways: dict[str, list[str]] = {}
    for name, limits in beyond.items():
        ways.setdefault(limits, []).append(name)
    return [f"* breaks {limits}: trial {', '.join(names)}" for limits, names in ways.items()]


def search_lines(run: Run) -> list[str]:
    """The search and its answer in words, a line each; none where the plan has no search."""
    found = search_verdict(run)
    return [] if found is None else [search_words(found.spec), *_answer(found)]


def _answer(found: SearchVerdict) -> list[str]:
    if found.best is not None:
        return [
            f"best of {found.tried}, each measured once: {_told(found.spec, found.best)}",
            "the best of many is partly luck: measure it again before it is quoted",
        ]
    if not found.sound:
        return [f"no answer: none of {found.tried} trials is valid and measured {found.spec.goal}"]
    never = found.never_met
    why = f"{' and '.join(never)} was never met" if never else "no trial met all limits at once"
    assert found.nearest is not None, "a sound trial is near or meets the limits"
    beyond = excess(found.spec, found.nearest)
    return [
        f"no answer: {why} in {found.sound} valid trials",
        f"nearest ({beyond:.0%} beyond its worst limit): {_told(found.spec, found.nearest)}",
    ]


def _told(spec: SearchSpec, tried: Tried) -> str:
    """`16 in flight: Output throughput per device (tokens/s) 312; TTFT p50 (s) 0.12`."""
    numbers = [
        f"{METRICS[name].heading if name in METRICS else name} {value_text(value)}"
        for name in dict.fromkeys(spec.metrics)
        if (value := tried.outcome.values.get(name)) is not None
    ]
    return f"{point_words(tried.axes)} (trial {tried.trial_id}): {'; '.join(numbers)}"


def _axes(item: dict[str, object]) -> dict[str, AxisValue]:
    point = item.get("point")
    axes = point.get("axes") if isinstance(point, dict) else None
    return axes if isinstance(axes, dict) else {}
