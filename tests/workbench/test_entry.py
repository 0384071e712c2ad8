"""The first moments of the command, and of the package that it lies in."""

import subprocess
import sys

import pytest

import workbench as wb

BEGIN = """
import os, runpy, signal, sys
class Impatient:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Impatient())
{before}
sys.argv = ["workbench", "--version"]
{start}
"""
SCRIPT = "from workbench.entry import main; sys.exit(main())"
AS_MODULE = "runpy.run_module('workbench', run_name='__main__')"


HEARD = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # a shell's `&` ignores it


def begun(module: str, start: str, before: str = HEARD) -> subprocess.CompletedProcess[str]:
    """The command, interrupted at the moment at which it imports `module`."""
    code = BEGIN.format(module=module, start=start, before=before)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


@pytest.mark.parametrize("start", [SCRIPT, AS_MODULE], ids=["script", "module"])
@pytest.mark.parametrize("module", ["workbench.cli", "typer", "numpy._core", "pydantic"])
def test_an_interrupt_while_python_imports_is_quiet(module, start):
    done = begun(module, start)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_an_interrupt_that_the_caller_ignores_stays_ignored():
    done = begun("typer", SCRIPT, before="signal.signal(signal.SIGINT, signal.SIG_IGN)")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("workbench ")


def test_importing_the_package_loads_nothing():
    code = ("import sys; before = set(sys.modules); import workbench; "
            "print(sorted(n for n in {*sys.modules} - before if n.split('.')[0] in "
            "('numpy', 'pydantic', 'experiments', 'engine', 'kernels')))")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_name_of_the_package_is_there():
    assert {*wb.__all__} == {*wb.HOMES}
    assert all(getattr(wb, name) is not None for name in wb.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'absent'"):
        wb.absent  # noqa: B018


def test_names_stay_functions_when_modules_of_their_name_are_imported():
    code = (
        "import workbench.pareto, workbench.report, workbench.compare, workbench.confirm; "
        "import workbench as wb; print(*map(callable, (wb.pareto, wb.report, wb.compare, "
        "wb.confirm)), wb.pareto.__module__, workbench.pareto is wb.pareto)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"] * 4 + ["workbench.fronts", "True"]
