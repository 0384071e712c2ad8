"""The order of the engine's modules, which import-linter holds, leaves none out."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA = {"engine.checkpoints"}  # shipped files, no code


def test_every_module_of_the_engine_has_its_layer():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (layers,) = (c["layers"] for c in contracts["contracts"] if c["name"] == "Inside the engine")
    named = {name for layer in layers for name in layer.split(" | ")}
    children = [path for path in (ROOT / "engine").iterdir() if path.name != "__init__.py"]
    files = {f"engine.{path.stem}" for path in children if path.suffix == ".py"}
    folders = {f"engine.{path.parent.name}" for path in (ROOT / "engine").glob("*/__init__.py")}
    covered = named | {name.rpartition(".")[0] for name in named}
    assert files | folders - DATA <= covered
