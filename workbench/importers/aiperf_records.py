"""What AIPerf keeps of every request, and of the devices of the host.

Devices in its telemetry are those that the host shows, not those that served: never their number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments.records import ForeignNumber, TelemetrySample
from workbench.importers.aiperf import SCALES
from workbench.importers.cells import at, count, mapping, number, rows, text
from workbench.importers.document import Document, Form, refused
from workbench.importers.foreign import Column, Foreign, ForeignPoint, Format, derived
from workbench.importers.speeds import TPOT, harmonic, sampled, speeds


def _rows(document: Document) -> list[Mapping[str, object]]:
    if document.form is Form.LINES:
        return rows(document.value)
    return [mapping(document.value)] if document.form is Form.JSON else []


def _is_records(document: Document) -> bool:
    found = _rows(document)
    return bool(found) and all(
        isinstance(row.get("metadata"), Mapping) and "metrics" in row for row in found
    )


def _read_records(document: Document) -> Foreign:
    every = _rows(document)
    phases = [row for row in every if _measured(row)]
    good = [row for row in phases if row.get("error") is None and not _cancelled(row)]
    times = [_seconds(row, "request_latency") for row in good]
    firsts = [_seconds(row, "time_to_first_token") for row in good]
    tokens = [number(at(row, "metrics", "output_sequence_length", "value")) for row in good]
    tpots = [_seconds(row, "inter_token_latency") for row in good]
    numbers = [
        *sampled("request_latency", "e2e_s", "last chunk - sent", _known(times)),
        *sampled("time_to_first_token", "ttft_s", "first chunk - sent", _known(firsts)),
        *sampled("inter_token_latency", "tpot_compat_s", TPOT, _known(tpots)),
        *_rates(good, _known(tokens)),
    ]
    if None not in times + firsts + tokens:
        key = "request_latency, time_to_first_token, output_sequence_length"
        numbers += harmonic(_known(times), _known(firsts), _known(tokens), key)
    numbers += speeds(numbers)
    point = ForeignPoint(
        engine={}, workload={}, numbers=tuple(numbers), samples=len(good),
        failed=len(phases) - len(good),
    )  # fmt: skip
    left = len(every) - len(phases)
    notes = (f"{left:,} records of other phases, such as warm-up, were left out.",) if left else ()
    return Foreign(points=(point,), notes=notes)


def _measured(row: Mapping[str, object]) -> bool:
    return text(at(row, "metadata", "benchmark_phase")) in (None, "profiling")


def _cancelled(row: Mapping[str, object]) -> bool:
    return at(row, "metadata", "was_cancelled") is True


def _seconds(row: Mapping[str, object], name: str) -> float | None:
    cell = mapping(at(row, "metrics", name))
    value, scale = number(cell.get("value")), SCALES.get(str(cell.get("unit")))
    return None if value is None or scale is None else value * scale


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _rates(good: Sequence[Mapping[str, object]], tokens: Sequence[float]) -> list[ForeignNumber]:
    """Of the time from the first send to the last end of what succeeded."""
    starts = _known([number(at(row, "metadata", "request_start_ns")) for row in good])
    ends = _known([number(at(row, "metadata", "request_end_ns")) for row in good])
    span_s = (max(ends) - min(starts)) / 1e9 if starts and ends else 0.0
    if span_s <= 0 or len(tokens) != len(good):
        return []
    span = "(last request_end_ns - first request_start_ns)"
    return [
        derived(f"output_sequence_length / {span}", sum(tokens) / span_s, Column(
            key="", metric="output_tok_s", unit="tok/s", meaning="output tokens / that time")),
        derived(f"records / {span}", len(good) / span_s, Column(
            key="", metric="request_s", unit="req/s", meaning="successful requests / that time")),
        derived(span, span_s, Column(
            key="", metric="duration_s", unit="s", meaning="of what succeeded")),
    ]  # fmt: skip


def _is_telemetry(document: Document) -> bool:
    found = _rows(document)
    return bool(found) and all({"timestamp_ns", "telemetry_data"} <= row.keys() for row in found)


def _read_telemetry(document: Document) -> Foreign:
    every = _rows(document)
    timed = [row for row in every if number(row.get("timestamp_ns")) is not None]
    if not timed:
        raise refused(document.path, "is AIPerf telemetry without a time in it.")
    source = {str(row.get("gpu_uuid")): str(row.get("dcgm_url")) for row in reversed(timed)}
    kept = [row for row in timed if str(row.get("dcgm_url")) == source[str(row.get("gpu_uuid"))]]
    places = {uuid: place for place, uuid in enumerate(sorted(source))}
    begin = min(number(row.get("timestamp_ns")) or 0.0 for row in kept)
    samples = tuple(_sample(row, begin, places[str(row.get("gpu_uuid"))]) for row in kept)
    names = sorted({name for row in kept if (name := text(row.get("gpu_model_name")))})
    watts = _known([sample.device_power_w for sample in samples])
    numbers = () if not watts else (derived("mean of gpu_power_usage", sum(watts) / len(watts),
        Column(key="", unit="W", meaning="mean over all samples, of one device")),)  # fmt: skip
    point = ForeignPoint(
        engine={"accelerator": ", ".join(names)} if names else {}, workload={},
        numbers=numbers, telemetry=samples,
    )  # fmt: skip
    notes = ["Devices of a telemetry file are those that the host shows, not those that served."]
    if len(kept) < len(timed):
        notes.append(f"{len(timed) - len(kept):,} samples tell of one device a second time.")
    return Foreign(points=(point,), notes=tuple(notes))


def read_telemetry_of(document: Document) -> Foreign | None:
    """What a document tells of devices; None where it is no telemetry."""
    return _read_telemetry(document) if _is_telemetry(document) else None


def span_of(document: Document) -> tuple[float, float] | None:
    """First and last instant of a summary's or records' requests, or of telemetry; ns of Unix."""
    if _is_telemetry(document):
        return _span(_rows(document), "timestamp_ns", "timestamp_ns")
    if _is_records(document):
        told = [mapping(row.get("metadata")) for row in _rows(document) if _measured(row)]
        return _span(told, "request_start_ns", "request_end_ns")
    value = mapping(document.value)
    told = [{"begin": _nanoseconds(value.get("min_request_timestamp")),
             "end": _nanoseconds(value.get("max_response_timestamp"))}]  # fmt: skip
    return _span(told, "begin", "end")


def _span(
    told: Sequence[Mapping[str, object]], first: str, last: str
) -> tuple[float, float] | None:
    begins = _known([number(row.get(first)) for row in told])
    ends = _known([number(row.get(last)) for row in told])
    return (min(begins), max(ends)) if begins and ends else None


def _nanoseconds(cell: object) -> object:
    stats = mapping(cell)
    return stats.get("avg") if stats.get("unit") == "ns" else None


def _sample(row: Mapping[str, object], begin_ns: float, place: int) -> TelemetrySample:
    cells = {name: number(value) for name, value in mapping(row.get("telemetry_data")).items()}
    energy, memory = cells.get("energy_consumption"), cells.get("gpu_memory_used")
    return TelemetrySample(
        time_s=((number(row.get("timestamp_ns")) or 0.0) - begin_ns) / 1e9,
        device_index=place,
        device_power_w=cells.get("gpu_power_usage"),
        device_energy_j=None if energy is None else number(energy * 1e6),  # megajoules in the file
        device_memory_bytes=None if memory is None else _bytes(memory),
        device_clock_mhz=cells.get("sm_clock_frequency"),
        device_memory_clock_mhz=cells.get("memory_clock_frequency"),
        device_temperature_c=cells.get("gpu_temperature"),
        device_utilisation_percent=cells.get("gpu_utilization"),
        device_power_limit_w=cells.get("power_management_limit"),
    )


def _bytes(gigabytes: float) -> int | None:
    found = number(gigabytes * 1e9)
    return None if found is None else count(round(found))


FORMATS = (
    Format(name="aiperf-records", tool="AIPerf", title="AIPerf's records of requests",
           recognises=_is_records, read=_read_records,
           expects="JSON lines with `metadata` and `metrics`"),
    Format(name="aiperf-telemetry", tool="AIPerf", title="AIPerf's telemetry of devices",
           recognises=_is_telemetry, read=_read_telemetry,
           expects="JSON lines with `timestamp_ns` and `telemetry_data`"),
)  # fmt: skip
