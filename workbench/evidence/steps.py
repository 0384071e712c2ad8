"""The steps of the evidence of a device, in order of their worth, and in a tiny form."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
MARK = "mark.cuda"  # of tests that need a device
NEEDED_BY_TESTS = ("pytest", "pytest_timeout", "hypothesis")
MOST_CHECKS = 9  # processes that one device has room for, the one with large cases among them
TINY_S = 300.0  # of a small form, which takes some seconds where nothing else runs
SPARE = 5  # processes of the first step that run whole models


@dataclass(frozen=True, kw_only=True)
class Command:
    """One process. In its words `{limit}` is the seconds that it has, `{out}` the folder.

    `is_told`: it takes `--json FILE` and, for what it wrote before, `--beside FILE`.
    """

    name: str
    words: tuple[str, ...]
    is_told: bool = False
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, kw_only=True)
class Step:
    """Commands that run side by side. `lacking`: why it cannot run here, or None."""

    name: str
    question: str
    limit_s: float
    commands: tuple[Command, ...]
    lacking: str | None = None


def steps_of(*, jobs: int, is_tiny: bool) -> tuple[Step, ...]:
    """All of them; `jobs` is how many processes may run at once."""
    return _tiny() if is_tiny else _whole(jobs)


def _python(*words: str) -> tuple[str, ...]:
    return (sys.executable, "-m", *words)


def _whole(jobs: int) -> tuple[Step, ...]:
    checks = max(2, min(jobs, MOST_CHECKS))
    return (
        Step(
            name="warm",
            question="Is every kernel of the steps below in the compiler's cache?",
            limit_s=170,
            commands=_warming(max(2, jobs - SPARE)),
        ),
        Step(
            name="check",
            question="Does every kernel agree with its definition on this device?",
            limit_s=170,
            commands=tuple(
                Command(
                    name=f"check-{number}",
                    words=_python("kernels.check", "--share", f"{number}/{checks}"),
                    is_told=True,
                )
                for number in range(1, checks + 1)
            ),
        ),
        Step(
            name="steps",
            question="What does a served decode step take, and how much of it is the host's?",
            limit_s=150,
            commands=(_served("steps", "--may-turn", requests=(32, 256, 1), drafts=(5, 0)),),
        ),
        Step(
            name="steps-float32",
            question="Do overlap and graphs leave every text as it is?",
            limit_s=60,
            commands=(
                _served(
                    "steps-float32",
                    *("--set", "dtype=float32", "--set", "cache_format=plain"),
                    requests=(256,),
                    drafts=(5,),
                ),
            ),
        ),
        Step(
            name="peers",
            question="How fast is the engine beside others on the same weights?",
            limit_s=330,
            commands=(_peers(),),
        ),
        Step(
            name="model",
            question="What do whole steps at the widths of the release take, beside their floors?",
            limit_s=120,
            commands=(Command(name="model", words=_python("engine.model_bench"), is_told=True),),
        ),
        Step(
            name="bench",
            question="What does each operation take, beside its floor and its peers?",
            limit_s=240,
            commands=(
                Command(
                    name="bench",
                    words=_python("kernels.bench", "--limit-s", "{limit}"),
                    is_told=True,
                ),
            ),
        ),
        _tests(),
    )


def _warming(shares: int) -> tuple[Command, ...]:
    brief = ("--steps", "2", "--rounds", "1")
    many = ("--requests", "256", "--requests", "32", "--requests", "1")
    return (
        *(
            Command(
                name=f"warm-{number}",
                words=_python("kernels.warm", "--share", f"{number}/{shares}"),
            )
            for number in range(1, shares + 1)
        ),
        *(
            Command(
                name=f"warm-{name}",
                words=_python("engine.step_bench", *brief, *many, "--may-turn", *words),
            )
            for name, words in {
                "drafts": ("--draft-length", "5"),
                "plain": ("--draft-length", "0"),
                "float32": ("--draft-length", "5", "--set", "dtype=float32",
                            "--set", "cache_format=plain"),
                "causal": ("--shape", "qwen3-0.6b", "--prompt-tokens", "128"),
            }.items()
        ),
        Command(name="warm-model", words=_python("engine.model_bench")),
    )  # fmt: skip


def _served(name: str, *words: str, requests: tuple[int, ...], drafts: tuple[int, ...]) -> Command:
    counts = [word for count in requests for word in ("--requests", str(count))]
    lengths = [word for length in drafts for word in ("--draft-length", str(length))]
    bench = _python("engine.step_bench", *counts, *lengths, *words)
    return Command(name=name, words=bench, is_told=True)


def _peers(*words: str) -> Command:
    sweep = _python("workbench.evidence.peers", "--store", "{out}/runs", "--limit-s", "{limit}")
    return Command(name="peers", words=(*sweep, *words))


def _tests() -> Step:
    """The tests that need a device; left out where they, or what runs them, are not there."""
    files = sorted(str(file.relative_to(ROOT)) for file in TESTS.rglob("test_*.py")
                   if MARK in file.read_text(encoding="utf-8"))  # fmt: skip
    absent = [name for name in NEEDED_BY_TESTS if importlib.util.find_spec(name) is None]
    lacking = f"not installed: {', '.join(absent)}" if absent else None
    if not files:
        lacking = f"there is no test with pytest.{MARK} in {TESTS}"
    words = _python("pytest", "-m", "cuda", "-p", "no:cacheprovider", *files)
    return Step(
        name="tests",
        question="Do the tests that need a device pass?",
        limit_s=240,
        commands=(Command(name="tests", words=words),),
        lacking=lacking,
    )


def _tiny() -> tuple[Step, ...]:
    """Each step but the first, on a processor, in seconds."""
    interpreted = {"TRITON_INTERPRET": "1"}
    on_cpu = ("--device", "cpu", "--op", "rms_norm")
    served = ("--set", "accelerator=cpu", "--prompt-tokens", "4", "--steps", "2", "--rounds", "1")
    model = ("--shape", "toy", "--accelerator", "cpu", "--weights", "packed", "--batch", "2")
    commands = {
        "check": [
            Command(
                name=f"check-{number}",
                words=_python("kernels.check", *on_cpu, "--small", "--rows", "5",
                              "--share", f"{number}/2"),
                is_told=True,
                environment=interpreted,
            )
            for number in (1, 2)
        ],
        "steps": [_served("steps", *served, "--may-turn", requests=(1, 2), drafts=(0,))],
        "steps-float32": [
            _served("steps-float32", *served, "--set", "dtype=float32", requests=(2,), drafts=(5,))
        ],
        "peers": [_peers("--tiny")],
        "model": [
            Command(
                name="model",
                words=_python("engine.model_bench", *model, "--context", "64", "--prefill", "0"),
                is_told=True,
            )
        ],
        "bench": [
            Command(
                name="bench",
                words=_python("kernels.bench", *on_cpu, "--rows", "1", "--limit-s", "{limit}"),
                is_told=True,
            )
        ],
    }  # fmt: skip
    whole = {step.name: step for step in _whole(jobs=2)}
    shrunk = [
        replace(whole[name], commands=tuple(mine), limit_s=TINY_S)
        for name, mine in commands.items()
    ]
    return (*shrunk, whole["tests"])
