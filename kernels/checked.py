"""What `kernels.check` has found on devices: `configs/checked/sm_ARCH.json`, one an architecture.

`python -m kernels.checked CHECK.json ... --write` makes it of the documents of a run in shares:
of each operation those of the latest, and of earlier ones where these hold other cases; what is
committed of operations that none of them holds is kept. The registry's `checked_on` follows it;
what differs is told, and exit code 1. An implementation is checked on an architecture where every
case of its operation has run there on one state of its sources, and every check passed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from kernels.interrupt import quiet_imports

with quiet_imports(__name__):
    from kernels import check
    from kernels.agreement import DTYPES, EVERY_CASE, ROWS
    from kernels.bench_document import DocumentError, earlier, rows_of
    from kernels.program import ended
    from kernels.registry import IMPLEMENTATIONS, Implementation
    from kernels.sources import Sources, at_commit, on_disk

FOLDER = Path(__file__).parent / "configs" / "checked"
FORMAT = "kernel checks"
WORST = ("worst_error", "worst_limit", "worst_case", "worst_rows")
SURROUNDINGS = ("device", "driver", "torch", "triton", "commit")
Document = Mapping[str, object]
Row = dict[str, object]
Kind = tuple[str, str]  # operation and implementation


def merged(
    documents: Sequence[Document], sources_at: Mapping[str, Sources], before: Document | None = None
) -> dict[str, object]:
    """One document of several; `sources_at` has the sources of each commit that they ran on.
    `before` is an earlier such document, of which operations are kept that none of these holds.

    DocumentError where two hold some of the same cases of an operation, but neither all of the
    other's: their sums cannot be told apart.
    """
    latest = sorted(documents, key=lambda one: str(one["started_at"]), reverse=True)
    (arch,) = {_count(one, "arch") for one in latest}
    lacking: list[str] = []
    rows: list[Row] = []
    for op in sorted({case.op for case in EVERY_CASE}):
        mine = list(_taken(op, latest))
        kept = [] if mine or before is None else list(_kept(op, before))
        rows += kept or _rows(op, mine, sources_at, arch)
        lacking += sorted(_lacking(op, before) if kept else _keys(op) - _held(mine))
    return {
        "format": FORMAT, "version": 1, "arch": arch,
        "runs": list(_runs(rows, [*latest, *rows_of(before or {}, "runs")])),
        "lacking": lacking, "results": rows,
    }  # fmt: skip


def _kept(op: str, before: Document) -> Iterator[Row]:
    names = {one.name for one in IMPLEMENTATIONS if one.op == op}
    for row in rows_of(before, "results"):
        if row["op"] == op and row["implementation"] in names:
            yield dict(row)


def _lacking(op: str, before: Document | None) -> set[str]:
    keys = _list(before or {}, "lacking")
    return {str(key) for key in keys if str(key).partition(":")[0] == op}


def _runs(rows: Sequence[Row], documents: Sequence[Document]) -> Iterator[Row]:
    """On what the commits of some rows ran, each once."""
    commits = {commit for row in rows for commit in _list(row, "commits")}
    runs = [{name: one[name] for name in SURROUNDINGS} for one in documents]
    yield from (
        run for n, run in enumerate(runs) if run["commit"] in commits and run not in runs[:n]
    )


def _keys(op: str) -> set[str]:
    return {check.case_key(case) for case in EVERY_CASE if case.op == op}


def _held(documents: Sequence[Document]) -> set[str]:
    return {str(key) for one in documents for key in _list(one, "cases")}


def _list(document: Document, name: str) -> list[object]:
    found = document.get(name)
    return found if isinstance(found, list) else []


def _taken(op: str, latest: Sequence[Document]) -> Iterator[Document]:
    """Of documents, the latest first, those that have cases which no later one has."""
    held: set[str] = set()
    for one in latest:
        mine = _keys(op) & _held([one])
        if mine <= held:
            continue
        if mine & held:
            raise DocumentError(
                f"of {op}, two documents hold {sorted(mine & held)[0]!r}, and each has others.",
                where=str(one["started_at"]),
                remedy="Check the operation again, whole, or leave one out.",
            )
        held |= mine
        yield one


def _rows(
    op: str, documents: Sequence[Document], sources_at: Mapping[str, Sources], arch: int
) -> Iterator[Row]:
    """A row for each implementation and dtype for which there are cases, whether it ran or not."""
    for one in (i for i in IMPLEMENTATIONS if i.op == op):
        for dtype in DTYPES:
            name = str(dtype).removeprefix("torch.")
            due = sum(
                len(case.checked_rows or ROWS)
                for case in EVERY_CASE
                if case.is_served_by(one, arch, dtype)
            )
            if due:
                about: Row = {"op": op, "implementation": one.name, "dtype": name, "due": due}
                yield about | _found(one, list(_found_in(documents, about)), sources_at)


def _found_in(documents: Sequence[Document], about: Row) -> Iterator[tuple[str, Row]]:
    names = ("op", "implementation", "dtype")
    for one in documents:
        for row in rows_of(one, "results"):
            if all(row[name] == about[name] for name in names):
                yield str(one["commit"]), dict(row)


def _found(
    one: Implementation, rows: Sequence[tuple[str, Row]], sources_at: Mapping[str, Sources]
) -> Row:
    """What the rows of one implementation and dtype come to."""
    commits = sorted({commit for commit, _ in rows})
    states = {sources_at[commit].digest(one.address) for commit in commits}
    worst: Row = max((row for _, row in rows), key=_share, default={})
    return {
        "checks": sum(_count(row, "checks") for _, row in rows),
        "passed": sum(_count(row, "passed") for _, row in rows),
        **{name: worst.get(name) for name in WORST},
        "commits": commits, "sources": states.pop() if len(states) == 1 else None,
    }  # fmt: skip


def _count(row: Mapping[str, object], name: str) -> int:
    found = row[name]
    assert isinstance(found, int)
    return found


def _share(row: Mapping[str, object]) -> float:
    """Of the error that is allowed; infinite where there is no number."""
    error, limit = row["worst_error"], row["worst_limit"]
    if not isinstance(error, float | int) or not isinstance(limit, float | int):
        return float("inf")
    return error / limit if limit else float(error > 0)


def checked(document: Document) -> set[Kind]:
    """The implementations of a merged document that are checked, as the module says."""
    lacking = {str(key).partition(":")[0] for key in _list(document, "lacking")}
    groups: dict[Kind, list[Mapping[str, object]]] = {}
    for row in rows_of(document, "results"):
        groups.setdefault((str(row["op"]), str(row["implementation"])), []).append(row)
    return {
        kind
        for kind, rows in groups.items()
        if kind[0] not in lacking
        and all(row["passed"] == row["checks"] and row["sources"] for row in rows)
        and all(_count(row, "checks") >= _count(row, "due") for row in rows)
    }


@cache
def document_of(architecture: str) -> Document:
    """What is committed for `sm_90`; empty where nothing is. Read once."""
    path = FOLDER / f"{architecture}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def changed_since(implementation: Implementation) -> bool:
    """Whether its sources differ from those that were checked on some architecture."""
    here = _sources_here().digest(implementation.address)
    return any(
        row["sources"] != here
        for architecture in implementation.checked_on
        for row in rows_of(document_of(architecture), "results")
        if (row["op"], row["implementation"]) == (implementation.op, implementation.name)
    )


@cache
def _sources_here() -> Sources:
    return Sources(on_disk)


def differences(document: Document) -> Iterator[str]:
    """Where the registry does not follow a merged document."""
    architecture = f"sm_{document['arch']}"
    found = checked(document)
    for one in IMPLEMENTATIONS:
        is_listed = architecture in one.checked_on
        if is_listed is not ((one.op, one.name) in found):
            told = "is not checked" if is_listed else "is checked, and the registry does not say so"
            yield f"{one.op} {one.name} {told} on {architecture}"


def text_of(document: Document) -> str:
    """As it is committed: a result a line."""
    head = {name: value for name, value in document.items() if name != "results"}
    rows = ",\n".join(f"  {json.dumps(row)}" for row in rows_of(document, "results"))
    return json.dumps(head, indent=1)[:-2] + f',\n "results": [\n{rows}\n ]\n}}\n'


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m kernels.checked", description=__doc__)
    parser.add_argument("documents", type=Path, nargs="+", metavar="CHECK.json")
    parser.add_argument("--write", action="store_true", help="replace the committed document")
    options = parser.parse_args(arguments)
    found = list(earlier(options.documents, check.FORMAT))
    commits = {str(one["commit"]) for one in found}
    before = document_of(f"sm_{found[0]['arch']}")
    document = merged(found, {commit: _sources(commit) for commit in commits}, before)
    if options.write:
        FOLDER.mkdir(parents=True, exist_ok=True)
        path = FOLDER / f"sm_{document['arch']}.json"
        path.write_text(text_of(document), encoding="utf-8")
    for row in rows_of(document, "results"):
        told = f"{row['passed']} of {row['checks']} passed, {row['due']} were due"
        print(f"{row['op']} {row['implementation']} {row['dtype']}: {told}")  # noqa: T201
    told = [*(f"not run: {key}" for key in _list(document, "lacking")), *differences(document)]
    print(*(f"{line}\n" for line in told), sep="", end="")  # noqa: T201
    return 1 if told else 0


def _sources(commit: str) -> Sources:
    read = at_commit(commit)
    if read("kernels/registry.py") is None:
        raise DocumentError(
            "is no commit that git has here.", where=commit, remedy="Fetch it, and try again."
        )
    return Sources(read)


if __name__ == "__main__":
    sys.exit(ended(main))
