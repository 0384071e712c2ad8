"""Our own benches of served steps: `python -m engine.step_bench` and `engine.prompt_bench`.

One point a model, draft length, load and variant (overlap, graphs).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from experiments.records import ForeignNumber
from workbench.importers.cells import axis, mapping, number, rows, text
from workbench.importers.document import Document
from workbench.importers.foreign import Column, Foreign, ForeignPoint, Format, derived, told
from workbench.importers.kernel_bench import bench_version, is_bench, surroundings

KIND = "decode steps"
WITH_PROMPTS = "steps with a prompt"
DIFFERS = "its rounds did not say the same"
STAGES = {
    "step": "the time between two steps of all requests, by the host's clock",
    "busy": "the device at work on a step, by marks in its own order",
    "idle": "the device without work between two steps, by marks in its own order",
    "plan": "the host choosing what a step runs",
    "launch": "the host giving it to the device",
    "wait": "the host waiting for results and reading them",
    "settle": "the host taking them in",
    "plan+settle": "planning and settling together",
}
WHOLE = (
    Column(key="tokens_per_s", metric="output_tok_s", unit="tok/s", meaning="tokens delivered",
           side="timed by the clock of the host"),
    Column(key="idle_share", unit="", meaning="of the time of the device between counted steps"),
    Column(key="steps", unit="", meaning="counted steps"),
    Column(key="other_texts", unit="", meaning="requests that said other than the first variant"),
    Column(key="replayed_steps", unit="", meaning="counted steps replayed from a captured one"),
)  # fmt: skip

_LOAD = ("requests", "decoding", "prompt_tokens", "temperature")


def _read(document: Document) -> Foreign:
    found = mapping(document.value)
    points = tuple(
        _point(found, kind, served, variant)
        for kind, key in ((KIND, "served"), (WITH_PROMPTS, "prompted"))
        for served in rows(found.get(key))
        for variant in rows(served.get("variants"))
    )
    return Foreign(points=points, version=bench_version(found))


def _point(
    found: Mapping[str, object],
    kind: str,
    served: Mapping[str, object],
    variant: Mapping[str, object],
) -> ForeignPoint:
    engine, load = mapping(served.get("engine")), mapping(served.get("load"))
    names = [name for name in _LOAD if name in load]
    return ForeignPoint(
        engine={
            **{name: axis(value) for name, value in engine.items()},
            **surroundings(found),
            "model": text(engine.get("model")),
            "variant": axis(variant.get("variant")),
        },
        workload={"kind": kind, **{name: axis(load.get(name)) for name in names}},
        numbers=(*told(variant, WHOLE), *_quantiles(variant)),
        invalid=DIFFERS if variant.get("repeats") is False else None,
        devices=1,
    )


def _quantiles(variant: Mapping[str, object]) -> Iterator[ForeignNumber]:
    for name in ("p50", "p99"):
        seconds = mapping(variant.get(f"{name}_s"))
        for stage, meaning in STAGES.items():
            found = number(seconds.get(stage))
            if found is not None:
                column = Column(key="", unit="s", meaning=f"{name} of {meaning}")
                yield derived(f"{stage} {name}", found, column)


FORMATS = (
    Format(
        name="step-bench", tool="engine.step_bench", title="timings of served decode steps",
        recognises=is_bench("step bench"), read=_read, expects='"format": "step bench"',
    ),
    Format(
        name="prompt-bench", tool="engine.prompt_bench", title="timings of steps with a prompt",
        recognises=is_bench("prompt bench"), read=_read, expects='"format": "prompt bench"',
    ),
)  # fmt: skip
