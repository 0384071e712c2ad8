"""Real result files of other tools, and documents made up by tests."""

import json
from pathlib import Path

from workbench.importers.document import Document, Form
from workbench.importers.intake import import_files, read_file
from workbench.store import Store

FOLDER = Path(__file__).parent.parent / "data" / "imports"


def foreign(name):
    """What an importer makes of one of the files in tests/data/imports."""
    return read_file(FOLDER / name).foreign


def numbers(point):
    """The value of each number of a point that there is, by metric where it is one, and by key."""
    return {name: one.value for one in point.numbers for name in (one.metric, one.key) if name}


def document(value, form=Form.JSON, path="result.json"):
    return Document(path=Path(path), sha256="0" * 64, size_bytes=0, form=form, value=value)


def written(folder, name, value):
    """A file of the value as JSON, or of the text."""
    path = folder / name
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def imported(folder, *paths, devices=None):
    """The one run that an import of the files makes in a store under `folder`."""
    found = import_files(paths, Store(folder / "store"), devices=devices)
    for error in found.refused.values():
        raise error
    (run,) = found.runs
    return run
