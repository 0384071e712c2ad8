"""Our own benches of the device: `python -m kernels.bench` and `python -m engine.model_bench`.

One point an operation, case, number of rows and implementation; one a whole step of a model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from experiments.records import AxisValue, ForeignNumber
from workbench.importers.cells import axis, mapping, number, rows, text
from workbench.importers.document import Document, Form
from workbench.importers.foreign import Column, Foreign, ForeignPoint, Format, derived, told

KIND = "kernel"
CALL = Column(key="cold_s", metric="call_s", unit="s", meaning="median of replays, cold inputs",
              side="timed on the device")  # fmt: skip
FLOOR = Column(key="floor_s", metric="floor_s", unit="s",
               meaning="the longer of moving and multiplying at the ceilings of the file",
               side="computed by the bench")  # fmt: skip
TIMES = (
    CALL,
    Column(key="warm_s", metric="call_warm_s", unit="s", meaning="median of replays, warm inputs",
           side="timed on the device"),
    FLOOR,
)  # fmt: skip
STEP = Column(key="step_s", metric="call_s", unit="s", meaning="one step of a whole model",
              side="timed on the device")  # fmt: skip
FRACTION = Column(key="", metric="floor_fraction", unit="", meaning="floor / call")
PEER = Column(key="", metric="peer_s", unit="s", meaning="the fastest peer of the same case")
RATIO = Column(key="", metric="peer_ratio", unit="", meaning="peer / call")
PART = Column(key="", unit="s", meaning="floor of this part of the model")
KERNEL = Column(key="", unit="s", meaning="on the device in one eager step, all launches")
COST = (
    Column(key="bytes", unit="B", meaning="least bytes that a call moves"),
    Column(key="flops", unit="", meaning="of matrix products of a call"),
)


def is_bench(name: str) -> Callable[[Document], bool]:
    """Whether a document is of that bench of ours."""
    return lambda document: (
        document.form is Form.JSON and mapping(document.value).get("format") == name
    )


def _read_kernels(document: Document) -> Foreign:
    found = mapping(document.value)
    timings = rows(found.get("timings"))
    peers = _fastest_peers(timings)
    points = tuple(_kernel_point(found, row, peers.get(_case(row))) for row in timings)
    missing = tuple(map(_gap, rows(found.get("missing"))))
    return Foreign(points=points, version=bench_version(found), notes=(*_ceilings(found), *missing))


def _read_model(document: Document) -> Foreign:
    found = mapping(document.value)
    points = tuple(_step_point(found, row) for row in rows(found.get("steps")))
    return Foreign(points=points, version=bench_version(found), notes=_ceilings(found))


def _case(row: Mapping[str, object]) -> tuple[object, ...]:
    return tuple(str(row.get(name)) for name in ("op", "case", "rows"))


def _fastest_peers(
    timings: list[Mapping[str, object]],
) -> dict[tuple[object, ...], Mapping[str, object]]:
    """By case, the peer whose cold call is shortest."""
    fastest: dict[tuple[object, ...], Mapping[str, object]] = {}
    for row in timings:
        time_s = number(row.get("cold_s"))
        if row.get("is_peer") is True and time_s is not None:
            best = number(fastest.get(_case(row), {}).get("cold_s"))
            if best is None or time_s < best:
                fastest[_case(row)] = row
    return fastest


def _kernel_point(
    found: Mapping[str, object], row: Mapping[str, object], peer: Mapping[str, object] | None
) -> ForeignPoint:
    cost = mapping(row.get("cost"))
    numbers = (
        *told(row, TIMES),
        *_fraction(number(row.get("cold_s")), number(row.get("floor_s"))),
        *(_beside(row, peer) if row.get("is_peer") is not True else ()),
        *told(cost, COST),
    )
    workload = {name: axis(row.get(name)) for name in ("op", "case", "rows")}
    return _point(found, {"kind": KIND, **workload}, numbers, axis(row.get("implementation")))


def _beside(
    row: Mapping[str, object], peer: Mapping[str, object] | None
) -> Iterator[ForeignNumber]:
    """The fastest peer of the same case, where there was one."""
    own_s = number(row.get("cold_s"))
    peer_s = None if peer is None else number(peer.get("cold_s"))
    if peer is not None and peer_s is not None and own_s:
        yield derived(f"{peer.get('implementation')} cold_s", peer_s, PEER)
        yield derived("peer cold_s / cold_s", peer_s / own_s, RATIO)


def _step_point(found: Mapping[str, object], row: Mapping[str, object]) -> ForeignPoint:
    floors, kernels = mapping(row.get("floor_s")), mapping(row.get("kernels"))
    known = [value for value in map(number, floors.values()) if value is not None]
    floor_s = sum(known) if known else None
    numbers = (
        *told(row, (STEP,)),
        derived("sum of floor_s", floor_s, FLOOR),
        *_fraction(number(row.get("step_s")), floor_s),
        *(derived(f"floor of {part}", number(s), PART) for part, s in floors.items()),
        *(derived(f"kernel {name}", number(s), KERNEL) for name, s in kernels.items()),
    )
    workload: dict[str, AxisValue] = {
        "kind": KIND, "op": "model step", "case": axis(row.get("name")),
        "rows": axis(row.get("rows")), "context": axis(row.get("context")),
    }  # fmt: skip
    how = "captured" if row.get("captured") is True else "eager"
    return _point(found, workload, numbers, how)


def _fraction(call_s: float | None, floor_s: float | None) -> Iterator[ForeignNumber]:
    if call_s and floor_s is not None:
        yield derived("floor_s / call", floor_s / call_s, FRACTION)


def _point(
    found: Mapping[str, object],
    workload: Mapping[str, AxisValue],
    numbers: tuple[ForeignNumber, ...],
    implementation: AxisValue,
) -> ForeignPoint:
    return ForeignPoint(
        engine={**surroundings(found), "model": "kernels", "implementation": implementation},
        workload=workload,
        numbers=numbers,
        devices=1,
    )


def surroundings(found: Mapping[str, object]) -> dict[str, AxisValue]:
    """The device and the software that a bench of ours ran on."""
    return {
        "accelerator": text(found.get("device")),
        "driver": text(found.get("driver")),
        "torch": text(found.get("torch")),
        "triton": text(found.get("triton")),
    }


def bench_version(found: Mapping[str, object]) -> str | None:
    """The commit that was timed."""
    return text(found.get("commit"))


def _ceilings(found: Mapping[str, object]) -> tuple[str, ...]:
    """As measured in the same run."""
    known = mapping(found.get("ceilings"))
    values = {name: number(known.get(name)) for name in
              ("copy_bytes_s", "bf16_flops_s", "fp8_flops_s")}  # fmt: skip
    shown = [f"{name} {value:.4g}" for name, value in values.items() if value is not None]
    return (f"ceilings of the run: {', '.join(shown)}",) if shown else ()


def _gap(row: Mapping[str, object]) -> str:
    where = " ".join(str(row.get(name)) for name in ("op", "case", "rows", "implementation"))
    return f"not timed: {where[:120]}: {text(row.get('why'))}"


FORMATS = (
    Format(
        name="kernel-bench", tool="kernels.bench", title="timings of kernels",
        recognises=is_bench("kernel bench"), read=_read_kernels, expects='"format": "kernel bench"',
    ),
    Format(
        name="model-bench", tool="engine.model_bench", title="timings of whole steps",
        recognises=is_bench("model bench"), read=_read_model, expects='"format": "model bench"',
    ),
)  # fmt: skip
