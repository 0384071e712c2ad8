"""Installs other engines, each in an environment of its own, step by step.

A step that has ended is noted beside the environment, so that an installation that was cut
short goes on where it stopped. Everything that the steps write goes to `install.log`.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

import psutil

from experiments.peers.recipes import Build, Recipe
from experiments.targets.programs import package_versions
from workbench.errors import DiskFullError, PeerInstallError
from workbench.files import explained, free_bytes, write_file

NOTES, LOG = "installed.json", "install.log"
SHOWN_LINES, SHOWN_CHARACTERS = 3, 400
_NO_NETWORK = (
    "temporary failure in name resolution", "name or service not known", "connection refused",
    "network is unreachable", "failed to establish a new connection", "could not resolve host",
    "read timed out", "max retries exceeded",
)  # fmt: skip
_NO_ROOM = ("no space left on device", "disk quota exceeded")
_NO_COMPILER = ("no cmake_cxx_compiler", "no cmake_c_compiler", "cmake_cxx_compiler not set")


class Commands(Protocol):
    """Runs one command to its end; what it writes goes to the log. Returns its exit code."""

    def __call__(self, argv: Sequence[str], *, log: Path) -> int:
        """Wait for it."""
        ...


@dataclass(frozen=True, kw_only=True)
class Installed:
    """What the notes say of a peer."""

    complete: bool
    steps: tuple[str, ...]
    versions: Mapping[str, str]


def run_command(argv: Sequence[str], *, log: Path) -> int:
    """As a child process with the lowest priority that it may have and still make progress."""
    quiet = ["nice", "-n", "10"] if shutil.which("nice") else []
    with log.open("ab") as opened:
        opened.write(f"$ {' '.join(argv)}\n".encode())
        opened.flush()
        done = subprocess.run(
            [*quiet, *argv],
            stdin=subprocess.DEVNULL,
            stdout=opened,
            stderr=subprocess.STDOUT,
            check=False,
        )
    return done.returncode


def installed(recipe: Recipe, folder: Path) -> Installed:
    """What is there of it; nothing where the notes are missing, damaged or of another recipe."""
    try:
        notes = json.loads((recipe.home(folder) / NOTES).read_text(encoding="utf-8"))
        told = Installed(
            complete=bool(notes["complete"]),
            steps=tuple(map(str, notes["steps"])),
            versions={str(k): str(v) for k, v in notes["versions"].items()},
        )
        same = notes["recipe"] == _identity(recipe)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Installed(complete=False, steps=(), versions={})
    return told if same else Installed(complete=False, steps=(), versions={})


def here(recipe: Recipe) -> dict[str, str]:
    """Versions of its packages beside the workbench; {} where it cannot be imported there."""
    if recipe.imports is None or importlib.util.find_spec(recipe.imports) is None:
        return {}
    return package_versions(Path(sys.executable), (recipe.imports, *recipe.packages))


def install(
    recipe: Recipe,
    folder: Path,
    *,
    tell: Callable[[str], None],
    commands: Commands = run_command,
) -> Installed:
    """Do what is left to do. `tell` is told of every step as it begins.

    PeerInstallError says what failed and what to do; DiskFullError where there is no room.
    """
    found = installed(recipe, folder)
    if found.complete and recipe.program(folder).is_file():
        return found
    _check_host(recipe, folder)
    home = recipe.home(folder)
    with explained(home):
        home.mkdir(parents=True, exist_ok=True)
    done = list(found.steps)
    for name, step in _steps(recipe, folder, commands).items():
        if name in done:
            continue
        tell(name)
        step()
        done.append(name)
        _note(recipe, folder, done, complete=False)
    _note(recipe, folder, done, complete=True)
    return installed(recipe, folder)


def _steps(recipe: Recipe, folder: Path, commands: Commands) -> dict[str, Callable[[], None]]:
    """What there is to do, in order."""
    home, python = recipe.home(folder), str(recipe.python(folder))

    def run(*argv: str) -> None:
        code = commands(argv, log=home / LOG)
        if code != 0:
            raise _failure(recipe, home / LOG, argv, code)

    def pip(*arguments: str) -> None:
        run(python, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments)

    steps: dict[str, Callable[[], None]] = {
        "make the environment": lambda: run(sys.executable, "-m", "venv", str(home / "venv")),
        "install packages": lambda: pip("install", *recipe.requirements),
    }
    if recipe.removed:
        steps["remove packages"] = lambda: pip("uninstall", "-y", *recipe.removed)
    if recipe.build is not None:
        steps |= _build_steps(recipe.build, home, run, pip)
    if recipe.imports is not None:
        steps["import it once"] = lambda: run(python, "-I", "-c", f"import {recipe.imports}")
    return steps


def _build_steps(
    build: Build, home: Path, run: Callable[..., None], pip: Callable[..., None]
) -> dict[str, Callable[[], None]]:
    sources, made = home / "sources", home / "build"
    name = build.source.partition("==")[0]

    def fetch() -> None:
        pip("download", "--no-deps", "--no-binary", name, "-d", str(home / "fetched"), build.source)

    def unpack() -> None:
        [archive] = (home / "fetched").glob("*.tar.gz")
        shutil.rmtree(sources, ignore_errors=True)
        with tarfile.open(archive) as opened:
            opened.extractall(sources, filter="data")

    def configure() -> None:
        [top] = sources.iterdir()
        run("cmake", "-S", str(top / build.folder), "-B", str(made), *build.configure)

    def compile_it() -> None:
        jobs = str(psutil.cpu_count() or 1)
        run("cmake", "--build", str(made), "--target", build.target, "--parallel", jobs)

    def keep() -> None:
        [top] = sources.iterdir()
        product = home / "bin" / Path(build.product).name
        product.parent.mkdir(exist_ok=True)
        shutil.copy2(made / build.product, product)
        for kept in build.keeps:
            _copy(top / build.folder / kept, home / "share" / kept)
        for spare in (sources, made, home / "fetched"):
            shutil.rmtree(spare, ignore_errors=True)

    return {
        "fetch the sources": fetch,
        "unpack them": unpack,
        "configure the build": configure,
        "build": compile_it,
        "keep what is needed": keep,
    }


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        shutil.copy2(source, target)


def _check_host(recipe: Recipe, folder: Path) -> None:
    missing = [name for name in recipe.needs if shutil.which(name) is None]
    if missing:
        raise PeerInstallError(
            f"needs {' and '.join(missing)}, which this host lacks.",
            where=recipe.name,
            remedy="Install it (on Debian: apt-get install cmake g++) and run the command again.",
        )
    free = free_bytes(_existing(folder))
    if free is not None and free < recipe.disk_bytes:
        raise DiskFullError(
            f"{free:,} bytes are free and {recipe.name} takes about {recipe.disk_bytes:,}. "
            "Nothing was written.",
            where=str(folder),
            remedy="Free some space, or choose another --folder.",
        )


def _existing(folder: Path) -> Path:
    """The nearest folder above that is there already."""
    return next(one for one in (folder.absolute(), *folder.absolute().parents) if one.is_dir())


def _failure(recipe: Recipe, log: Path, argv: Sequence[str], code: int) -> PeerInstallError:
    tail = log.read_text(encoding="utf-8", errors="replace")[-20_000:] if log.is_file() else ""
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    last = " / ".join(lines[-SHOWN_LINES:])[-SHOWN_CHARACTERS:]
    said = tail.casefold()
    if any(words in said for words in _NO_ROOM):
        what, remedy = "the disk is full", "Free some space and run the command again."
    elif any(words in said for words in _NO_NETWORK):
        what, remedy = (
            "the package registry cannot be reached",
            "Connect this host, or set pip's index (PIP_INDEX_URL), and run the command again.",
        )
    elif any(words in said for words in _NO_COMPILER):
        what, remedy = "there is no C++ compiler", "Install one (g++) and run the command again."
    else:
        what, remedy = (
            f"`{' '.join(argv[:4])} ...` ended with code {code}: {last}",
            f"Read {log}; the command goes on with this step when it is run again.",
        )
    return PeerInstallError(f"{what}.", where=recipe.name, remedy=remedy)


def _note(recipe: Recipe, folder: Path, steps: Sequence[str], *, complete: bool) -> None:
    versions = package_versions(recipe.python(folder), recipe.packages) if complete else {}
    if complete and recipe.build is not None:
        name, _, version = recipe.build.source.partition("==")
        versions = {f"sources of {name}": version, **versions}
    notes = {
        "recipe": _identity(recipe),
        "steps": list(steps),
        "complete": complete,
        "versions": versions,
        "licence": recipe.licence,
    }
    write_file(recipe.home(folder) / NOTES, json.dumps(notes, indent=1).encode())


def _identity(recipe: Recipe) -> list[object]:
    """What must be equal for steps that are done to stay done."""
    built = cast(
        "list[object]",
        [] if recipe.build is None else [recipe.build.source, *recipe.build.configure],
    )
    return [*recipe.requirements, *recipe.removed, *built]
