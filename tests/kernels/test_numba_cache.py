"""Compiled loops between starts, in a copy of the files that they need and nothing else."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kernels

PROBE = """
import logging, sys
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
from kernels.numba_bits import compiled, exponential

@compiled
def doubled(x):
    return 2 * exponential(x)

print(round(doubled(0.0), 3), sum(doubled.stats.cache_hits.values()))
"""


@pytest.fixture
def start(tmp_path):
    """Starts a program with a loop: what it prints, and its value and count of loops found."""
    folder = tmp_path / "kernels"
    folder.mkdir()
    for name in ("numba_bits.py", "numba_cache.py"):
        shutil.copy(Path(kernels.__file__).parent / name, folder)
    (folder / "__init__.py").touch()
    (folder / "numba_probe.py").write_text(PROBE)

    def run(**variables):
        kept = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")}
        environment = {**kept, "PYTHONPATH": str(tmp_path), "HOME": str(tmp_path), **variables}
        command = [sys.executable, "-m", "kernels.numba_probe"]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        *told, found = done.stdout.splitlines()
        return told, found

    return run


def test_a_loop_is_compiled_once_and_again_when_what_it_inlines_has_changed(start, tmp_path):
    told, found = start()
    assert ("event=loops_are_compiled" in told[0], found) == (True, "2.0 0")
    assert start() == ([], "2.0 1")
    source = tmp_path / "kernels/numba_bits.py"
    text = source.read_text()
    source.write_text(text.replace("* _two_to(n)", "* _two_to(n + _ONE)"))
    assert source.read_text() != text
    _, found = start()
    assert found == "4.0 0"


def test_loops_are_kept_for_the_user_where_the_sources_cannot_be_written_beside(start, tmp_path):
    (tmp_path / "kernels/__pycache__").touch()
    start()
    assert start() == ([], "2.0 1")
    assert [*(tmp_path / ".cache/inference-workbench").glob("loops-*/*/*.nbi")]


def test_loops_are_compiled_at_each_start_where_nothing_can_be_written(start, tmp_path):
    (tmp_path / "kernels/__pycache__").touch()
    (tmp_path / "file").touch()
    for _ in range(2):
        told, found = start(HOME=str(tmp_path / "file"))
        assert ("event=loops_not_kept" in told[0], found) == (True, "2.0 0")
    assert start(NUMBA_CACHE_DIR=str(tmp_path / "asked"))[1] == "2.0 0"
    assert start(NUMBA_CACHE_DIR=str(tmp_path / "asked")) == ([], "2.0 1")


def cut(content):
    return content[: len(content) // 2]


def flipped(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize(
    "damage", [lambda _: b"", cut, flipped, lambda content: bytes(len(content))],
    ids=["emptied", "cut", "a bit", "zeros"],
)  # fmt: skip
def test_a_loop_whose_files_are_damaged_is_compiled_again(start, tmp_path, suffix, damage):
    start()
    kept = [*tmp_path.glob(f"kernels/__pycache__/loops-*/*/*.{suffix}")]
    assert kept
    for path in kept:
        path.write_bytes(damage(path.read_bytes()))
    told, found = start()
    assert found == "2.0 0"
    assert any("event=kept_loop_is_unsound" in line for line in told)
    assert start() == ([], "2.0 1")


def test_a_loop_that_cannot_be_kept_is_compiled_at_each_start(start, tmp_path):
    start()
    for path in tmp_path.glob("kernels/__pycache__/loops-*/*/*.nbi"):
        path.unlink()
        path.mkdir()
    for _ in range(2):
        told, found = start()
        assert found == "2.0 0"
        assert any("event=loop_not_kept" in line for line in told)
