"""What a kernel is written in: which files change its number, and which do not."""

import subprocess

import pytest

from kernels import sources
from kernels.sources import Sources, at_commit, on_disk

FILES = {
    "kernels/one/triton_cuda.py": "import triton\n"
    "from kernels.one import triton_parts\n"
    "from kernels.one.reference import facts\n"
    "TABLE = Tunable(name='tiles', op='one')\n",
    "kernels/one/triton_parts.py": "import triton.language as tl\n",
    "kernels/one/reference.py": "import torch\nfrom kernels.two import triton_deep\n",
    "kernels/two/triton_deep.py": "from triton import jit\n",
    "kernels/three/triton_cuda.py": "import triton\n",
    "kernels/configs/tuned/tiles.json": "{}",
    "kernels/configs/tuned/other.json": "{}",
}
ADDRESS = "kernels.one.triton_cuda:one"


def digest(**changes):
    return Sources({**FILES, **changes}.get).digest(ADDRESS)


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        ("kernels/one/triton_cuda.py", True),
        ("kernels/one/triton_parts.py", True),
        ("kernels/two/triton_deep.py", True),
        ("kernels/configs/tuned/tiles.json", True),
        ("kernels/one/reference.py", False),
        ("kernels/three/triton_cuda.py", False),
        ("kernels/configs/tuned/other.json", False),
    ],
)
def test_what_is_launched_and_its_tables_count_and_nothing_else(path, counts):
    assert (digest(**{path: FILES[path] + "\n"}) != digest()) is counts


def test_a_table_that_appears_is_a_change():
    without = {path: text for path, text in FILES.items() if not path.endswith("tiles.json")}
    assert Sources(without.get).digest(ADDRESS) != digest()


def test_what_is_not_there_has_no_number():
    assert Sources({}.get).digest(ADDRESS) is None


def test_files_are_read_as_they_are_here_and_as_they_were_at_a_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    file = tmp_path / "kernels" / "one.py"
    file.parent.mkdir()
    file.write_text("before")
    git = ("git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "one")):
        subprocess.run([*git, *words], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    file.write_text("after")
    then = at_commit(head.stdout.strip())
    assert (then("kernels/one.py"), on_disk("kernels/one.py")) == ("before", "after")
    assert then("kernels/two.py") is on_disk("kernels/two.py") is None
