"""What a run says while it is measured: a board with a trial in flight, and one between trials."""

from __future__ import annotations

from pathlib import Path

from experiments.records import TelemetrySample, TrialId
from experiments.watch import Activity, CurrentTrial, Event, Second, Snapshot
from workbench.files import write_file
from workbench.progress import PROGRESS, Progress, progress_text


def current(text: str = "") -> CurrentTrial:
    """A trial of 12 s on a host with one device; `text` goes wherever a text can."""
    return CurrentTrial(
        trial_id=TrialId("0123456789abcdef"),
        axes={"batch_size": 16, "draft_length": 5} | ({"note": text} if text else {}),
        repeat=0,
        attempt=2,
        started_utc="2026-11-29T12:00:00+00:00",
        activity=Activity.SERVING,
        forecast_s=30.0,
        seconds=tuple(second(number) for number in range(12) if number != 5),
        devices=(
            TelemetrySample(time_s=11.0, cpu_percent=41.0, memory_bytes=2_000_000_000),
            TelemetrySample(
                time_s=11.0,
                device_index=0,
                device_power_w=612.0,
                device_clock_mhz=1755.0,
                device_memory_bytes=99_000_000_000,
                device_utilisation_percent=97.0,
                device_temperature_c=58.0,
                throttle_reasons=(text or "sw_power_cap",),
            ),
        ),
    )


def second(number: int) -> Second:
    """One second of a load that grows; no first token comes in odd ones."""
    return Second(
        second=number,
        output_tokens=200 + 10 * number,
        ended_requests=number % 3,
        in_flight=min(16, 4 + number),
        first_tokens=1 - number % 2,
        ttft_s=None if number % 2 else 0.05 + 0.01 * number,
    )


def progress(text: str = "", *, flying: bool = True) -> Progress:
    """One writing of progress.json of a run of 24 trials."""
    return Progress(
        written_utc="2026-11-29T12:00:12+00:00",
        planned=24,
        stored=1,
        counts={"ok": 1},
        sweep=Snapshot(
            current=current(text) if flying else None,
            time_left_s=700.0,
            events=(
                Event(time_utc="2026-11-29T11:58:00+00:00", words="the engine is up"),
                Event(
                    time_utc="2026-11-29T11:59:00+00:00",
                    words=text or "stored as ok",
                    trial_id=TrialId("fedcba9876543210"),
                ),
            ),
        ),
    )


def write(folder: Path, found: Progress) -> None:
    """Leave `found` in the run's folder, as the process that measures does."""
    write_file(folder / PROGRESS, progress_text(found).encode("utf-8", "backslashreplace"))
