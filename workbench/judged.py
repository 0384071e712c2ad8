"""What agreement between arms makes of stored trials, as readers see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import cast

from experiments.metric_values import missing
from experiments.outputs import asked
from experiments.proportions import share_between
from experiments.records import Gate, MetricValue, TrialRecord, TrialState
from workbench.agreement import (
    BY_PRECISION,
    Agreement,
    Comparison,
    Document,
    Outputs,
    agreements,
    mapping,
)

GATE = "agreement"
_METRICS = (
    "equal_outputs", "token_flip_rate", "token_flip_rate_off", "equal_outputs_arm",
    "token_flip_rate_arm",
)  # fmt: skip
ALONE = "no other trial of this run was asked the same and must agree"
NO_ARM = "no trial of the plan's reference arm was asked the same"
UNKEPT = "outputs differ and their ids were not kept; raise protocol.keep_output_tokens"


def judged(
    documents: Sequence[Document], plan: Mapping[str, object], outputs: Callable[[str], Outputs]
) -> list[dict[str, object]]:
    """The documents as readers see them: agreement told, and an arm that violates it invalid."""
    limit = mapping(plan.get("gates")).get(GATE, BY_PRECISION)
    found = agreements(documents, limit, outputs, plan.get("reference"))
    return [_told(document, found.get(str(document.get("trial_id")))) for document in documents]


def violations(documents: Sequence[Document]) -> list[str]:
    """One line for each judged document that was measured well and disagrees with its arm."""
    return [
        f"trial {told['trial_id']} is invalid: {told['reason']}"
        for told in documents
        if told.get("state") == TrialState.INVALID
        and str(told.get("reason", "")).startswith(f"{GATE}: ")
    ]


def kept_outputs(folder: Path) -> Outputs:
    """Output ids that a trial's requests.parquet holds, by what was asked; {} from older files."""
    import pyarrow.parquet

    columns = ["prompt_hash", "requested_output_tokens", "exact_output_length", "output_token_ids"]
    try:
        table = pyarrow.parquet.read_table(folder / "requests.parquet", columns=columns)
    except (OSError, pyarrow.ArrowException):
        return {}
    if table.num_columns < len(columns):
        return {}
    rows = zip(*(table[name].to_pylist() for name in columns), strict=True)
    return {
        asked(prompt, length, exact): tuple(ids)
        for prompt, length, exact, ids in rows
        if prompt is not None and ids is not None
    }


def judged_record(record: TrialRecord, document: Document) -> TrialRecord:
    """The record as its judged document says it is."""
    if "agreement" not in document:
        return record
    from pydantic import TypeAdapter

    metrics = mapping(document["metrics"])
    read = TypeAdapter(MetricValue).validate_python
    told = {name: read(metrics[name]) for name in _METRICS}
    gates = TypeAdapter(tuple[Gate, ...]).validate_python(document["gates"])
    return replace(
        record,
        state=TrialState(str(document["state"])),
        reason=cast("str | None", document["reason"]),
        metrics={**record.metrics, **told},
        gates=gates,
    )


def _told(document: Document, found: Agreement | None) -> dict[str, object]:
    """The document with metrics, gate and facts of agreement; unchanged without outputs."""
    if found is None:
        return dict(document)
    told = dict(document)
    values = _values(found)
    told["metrics"] = {
        **mapping(document.get("metrics")),
        **{name: asdict(value) for name, value in values.items()},
    }
    told["agreement"] = {
        "reference": found.must and found.must.reference,
        "first_difference": found.must and found.must.first_difference,
        "off_reference": found.off and found.off.reference,
        "off_first_difference": found.off and found.off.first_difference,
        "arm_reference": found.peer and found.peer.reference,
        "arm_first_difference": found.peer and found.peer.first_difference,
    }
    gate = _gate(found)
    if gate is not None:
        told["gates"] = [*cast("list[object]", document.get("gates", [])), asdict(gate)]
        if not gate.passed and document.get("state") == TrialState.OK:
            told |= {"state": str(TrialState.INVALID), "reason": f"{GATE}: {gate.message}"}
    return told


def _values(found: Agreement) -> dict[str, MetricValue]:
    must, off = found.must, found.off
    return {
        "equal_outputs": _equal(must, ALONE),
        "token_flip_rate": _flips(must, ALONE),
        "token_flip_rate_off": _flips(off, "no trial of this run ran the same with full prefill"),
        "equal_outputs_arm": _named(found.peer) or _equal(found.peer, NO_ARM),
        "token_flip_rate_arm": _flips(found.peer, NO_ARM),
    }


def _equal(comparison: Comparison | None, alone: str) -> MetricValue:
    if comparison is None:
        return missing(alone)
    return _share(comparison.requests - comparison.flips, comparison.requests)


def _named(peer: Comparison | None) -> MetricValue | None:
    """Answers in text alone never equal answers in ids: then that says nothing."""
    return missing(UNKEPT) if peer is not None and peer.tokens is None else None


def _flips(comparison: Comparison | None, alone: str) -> MetricValue:
    if comparison is None:
        return missing(alone)
    if comparison.tokens is None:
        return missing(UNKEPT)
    return _share(comparison.flips, comparison.tokens)


def _share(count: int, of: int) -> MetricValue:
    low, high = share_between(count, of)
    return MetricValue(value=count / of, n=of, low=low, high=high) if of else missing("no token")


def _gate(found: Agreement) -> Gate | None:
    """None where the gate is off or there is nothing to hold the trial against.

    An exact limit fails at the first flip; another one only where the interval of the flips is
    wholly above it, since a single flip among few tokens says little.
    """
    must, limit = found.must, found.limit
    if must is None or limit is None:
        return None
    said = f"{must.flips} of {must.requests} greedy outputs differ from trial {must.reference}"
    if must.first_difference is not None:
        said += f", the earliest at token {must.first_difference + 1}"
    if not must.flips or not limit:
        return _verdict(must.flip_rate, limit, said, passed=not must.flips)
    if must.tokens is None or must.flip_rate is None:
        return _verdict(None, limit, f"not judged: {said}; {UNKEPT}", judged=False)
    said += f": {must.flip_rate:.2%} of {must.tokens} tokens flip (limit {limit:.2%})"
    low, _ = share_between(must.flips, must.tokens)
    if must.flip_rate > limit >= (low or 0.0):
        said = f"not judged: {said}; too few tokens to say"
        return _verdict(must.flip_rate, limit, said, judged=False)
    return _verdict(must.flip_rate, limit, said, passed=must.flip_rate <= limit)


def _verdict(
    value: float | None, limit: float, message: str, *, passed: bool = True, judged: bool = True
) -> Gate:
    return Gate(name=GATE, passed=passed, judged=judged, value=value, limit=limit, message=message)
