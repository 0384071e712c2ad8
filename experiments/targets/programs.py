"""Where the program of another engine is, and which version it is."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from experiments.errors import MissingProgramError
from experiments.peers.recipes import PEERS, default_folder
from experiments.targets.launchers import Launcher

VERSION_S = 20.0
_VERSIONS = """
import importlib.metadata as m, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = m.version(name)
    except m.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def program_of(launcher: Launcher, named: str | None) -> Path:
    """The program to start: the plan's, an installed peer's, or the one on the PATH.

    MissingProgramError with the line that installs it.
    """
    if named is not None:
        return found_program(named, "server.program", "Correct the path, or leave the field out.")
    if launcher.peer is not None:
        recipe = PEERS[launcher.peer]
        path = recipe.program(default_folder())
        if path.is_file():
            return path
        on_path = shutil.which(path.name) if recipe.build is not None else None
        if on_path is None:
            raise _missing(launcher, str(path))
        return Path(on_path)
    name = launcher.program or launcher.name
    try:
        return found_program(name, launcher.name, launcher.install)
    except MissingProgramError as error:
        raise _missing(launcher, name) from error


def found_program(named: str, where: str, remedy: str) -> Path:
    """The absolute path of a program named by a path or found on the PATH.

    Links are not followed: an environment's interpreter is known by its link.
    """
    path = Path(named).expanduser()
    found = path.absolute() if path.is_file() else shutil.which(named)
    if found is None:
        raise MissingProgramError(f"there is no program {named}.", where=where, remedy=remedy)
    return Path(found).absolute()


def _missing(launcher: Launcher, looked_for: str) -> MissingProgramError:
    return MissingProgramError(
        f"{looked_for} is not there.",
        where=f"launcher {launcher.name}",
        remedy=f"Install it: {launcher.install}.",
    )


def version_of(launcher: Launcher, program: Path) -> str | None:
    """What the program says of its version; None where it says nothing within 20 s."""
    if launcher.packages:
        versions = package_versions(program, (*launcher.packages, "torch", "transformers"))
        named = [f"{name} {versions[name]}" for name in versions]
        return ", ".join(named) or None
    if launcher.version_option is None:
        return None
    return _said(program, launcher.version_option)


@cache
def package_versions(python: Path, packages: tuple[str, ...]) -> dict[str, str]:
    """Versions of those packages that an interpreter has; {} where it cannot be asked."""
    isolated = [] if python == Path(sys.executable) else ["-I"]  # ours finds what we find
    try:
        done = subprocess.run(
            [str(python), *isolated, "-c", _VERSIONS, *packages],
            capture_output=True,
            timeout=VERSION_S,
            check=True,
        )
        return {str(name): str(value) for name, value in json.loads(done.stdout).items()}
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}


@cache
def _said(program: Path, option: str) -> str | None:
    try:
        done = subprocess.run(
            [str(program), option], capture_output=True, timeout=VERSION_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    lines = (done.stdout + done.stderr).decode("utf-8", errors="replace").splitlines()
    said = [line.strip() for line in lines if line.strip()]
    named = [line for line in said if "version" in line.lower()]
    return (named or said or [None])[0]
