"""A model folder as the GGUF file that llama.cpp loads: the same weights, in the same precision."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from experiments.errors import MissingPackageError
from experiments.peers.recipes import PEERS, Recipe
from experiments.targets.checkpoint import model_directory
from workbench.errors import PeerInstallError
from workbench.peer_install import LOG, Commands, run_command

GGUF = "model.bf16.gguf"
_CONVERT = """
import runpy, sys
sys.path[:0] = [sys.argv.pop(1), *sys.argv.pop(1).split(":")]
sys.argv[0] = sys.argv[1]
del sys.argv[1]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def convert(model: str, folder: Path, *, commands: Commands = run_command) -> Path:
    """Write `model.bf16.gguf` beside the weights, by llama.cpp's own converter; once.

    Matrices stay bf16 bit for bit; llama.cpp keeps vectors (norms) in float32. It runs in this
    Python, which has torch and transformers, with what the peer's environment adds.
    """
    path = model_directory(model).resolve()
    target = path / GGUF
    if target.is_file():
        return target
    recipe = PEERS["llama-cpp"]
    home = recipe.home(folder)
    script = home / "share" / "convert_hf_to_gguf.py"
    _check_tools(script, recipe)
    [packages] = (home / "venv" / "lib").glob("python*/site-packages")
    partial = target.with_suffix(".partial")
    paths = f"{home / 'share' / 'gguf-py'}:{packages}"
    argv = [
        sys.executable, "-I", "-c", _CONVERT, str(script.parent), paths, str(script), str(path),
        "--outtype", "bf16", "--outfile", str(partial),
    ]  # fmt: skip
    code = commands(argv, log=home / LOG)
    if code != 0 or not partial.is_file():
        partial.unlink(missing_ok=True)
        raise PeerInstallError(
            f"llama.cpp's converter ended with code {code}.",
            where=str(path),
            remedy=f"Read the end of {home / LOG}.",
        )
    partial.rename(target)
    return target


def _check_tools(script: Path, recipe: Recipe) -> None:
    if not script.is_file():
        raise PeerInstallError(
            f"{script} is not there.",
            where="llama-cpp",
            remedy=f"Install it: {recipe.install_line}.",
        )
    if importlib.util.find_spec("transformers") is None:
        raise MissingPackageError(
            "the conversion needs transformers, which is not installed.",
            where="workbench peers convert",
            remedy="pip install -e '.[peers]'",
        )
