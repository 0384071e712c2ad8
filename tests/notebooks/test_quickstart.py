"""The notebooks that ship run from the first cell to the last, and carry no outputs."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import workbench as wb
from experiments.foreign_cpu import OTHER_WORK

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quickstart")
    notebook = nbformat.read(NOTEBOOKS / "01_quickstart.ipynb", as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=240, resources=resources).execute()
    return notebook, wb.Store(folder / "results")


def outputs(notebook, kind):
    return [
        output["data"][kind]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if kind in output.get("data", {})
    ]


def test_the_quickstart_stores_the_four_trials_that_it_names(executed):
    (summary,) = executed[1].runs()
    assert (summary.name, summary.planned) == ("quickstart", 4)
    assert sum(summary.counts.values()) == 4
    assert summary.counts["ok"] + summary.counts["invalid"] == 4


def test_the_progress_is_shown_up_to_the_last_trial(executed):
    assert any("4 of 4 trials" in shown for shown in outputs(executed[0], "text/html"))


def test_the_front_and_an_answer_are_among_the_outputs(executed):
    assert outputs(executed[0], "application/vnd.plotly.v1+json")
    answers = [shown for shown in outputs(executed[0], "text/plain") if "1 in flight" in shown]
    (told,) = answers
    lengths = [float(found) for found in re.findall(r"verify step emitted ([0-9.]+) tokens", told)]
    assert len(lengths) == 2
    assert all(length > 1.3 for length in lengths)  # the drafter of a trained checkpoint


def test_no_label_says_that_the_acceptance_is_meaningless(executed):
    (summary,) = executed[1].runs()
    own = [label for label in summary.labels if label != OTHER_WORK]  # of this host
    assert own == ["indicative"]


def test_the_report_lies_beside_the_run(executed):
    (summary,) = executed[1].runs()
    assert (executed[1].run(summary.run_id).folder / "report" / "report.html").is_file()


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.name)
def test_a_shipped_notebook_has_no_outputs_and_imports_the_workbench_only(path):
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    sources = "\n".join(cell.source for cell in code).splitlines()
    imports = [line.split()[1] for line in sources if line.startswith(("import ", "from "))]
    assert {name.split(".")[0] for name in imports} <= {"workbench"}
