"""Command lines that are printed work when they are pasted."""

import shlex
import sys
from pathlib import Path

from workbench import invocation
from workbench.invocation import command_line, program


def test_the_program_is_named_as_it_was_invoked(tmp_path, monkeypatch):
    script = tmp_path / "bin/workbench"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    assert program("bin/workbench") == ["bin/workbench"]
    monkeypatch.setenv("PATH", str(script.parent))
    assert program(str(script)) == ["workbench"]
    module = Path(invocation.__file__).with_name("__main__.py")
    assert program(str(module)) == [sys.executable, "-m", "workbench"]


def test_a_notebook_names_the_script_of_its_environment(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    script = Path(sys.executable).with_name("workbench")
    assert program("/usr/lib/ipykernel_launcher.py") == [str(script)]


def test_a_path_with_spaces_is_one_word_and_the_default_store_is_left_out():
    line = command_line("resume", "a b", store=Path("my results"))
    assert shlex.split(line)[-4:] == ["resume", "a b", "--store", "my results"]
    assert "--store" not in command_line("resume", "a", store=Path("results"))
