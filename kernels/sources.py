"""What the kernels of an implementation are written in, as one number that changes with it.

Those are the modules that it imports, one through another, that import triton, and the tables of
launch configurations that these name. Other modules do not run on a device.
"""

from __future__ import annotations

import ast
import hashlib
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
TABLES = "kernels/configs/tuned"
DIGITS = 16  # of the digest that are kept

Read = Callable[[str], str | None]
"""The text of a file of this source by its path from the root; None where there is none."""


def on_disk(path: str) -> str | None:
    """A file as it is here."""
    file = ROOT / path
    return file.read_text(encoding="utf-8") if file.is_file() else None


def at_commit(commit: str) -> Read:
    """Files as they were at a commit that git has here."""

    def read(path: str) -> str | None:
        command = ("git", "-C", str(ROOT), "show", f"{commit}:{path}")
        done = subprocess.run(command, capture_output=True, check=False)
        return done.stdout.decode() if done.returncode == 0 else None

    return read


@dataclass(frozen=True)
class _Module:
    path: str
    text: str
    imports: tuple[str, ...]  # modules, or names in them
    tables: tuple[str, ...]

    @property
    def is_kernel(self) -> bool:
        return any(name.partition(".")[0] == "triton" for name in self.imports)


class Sources:
    """Modules of this source in one state; each is read once."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._modules: dict[str, _Module | None] = {}

    def digest(self, address: str) -> str | None:
        """Of what `module:function` launches; None where there is no such module."""
        name = address.partition(":")[0]
        if self._module(name) is None:
            return None
        modules = [one for one in self._reached(name) if one.is_kernel]
        texts = {one.path: one.text for one in modules}
        for table in {table for one in modules for table in one.tables}:
            path = f"{TABLES}/{table}.json"
            texts[path] = self._read(path) or ""
        joined = "".join(f"{path}\n{text}\n" for path, text in sorted(texts.items()) if text)
        return hashlib.sha256(joined.encode()).hexdigest()[:DIGITS]

    def _reached(self, first: str) -> Iterator[_Module]:
        waiting, seen = [first], {first}
        while waiting:
            module = self._module(waiting.pop())
            if module is not None:
                yield module
                fresh = {name for name in module.imports if name.startswith("kernels.")} - seen
                waiting += fresh
                seen |= fresh

    def _module(self, name: str) -> _Module | None:
        if name not in self._modules:
            path = f"{name.replace('.', '/')}.py"
            text = self._read(path)
            self._modules[name] = None if text is None else _parsed(path, text)
        return self._modules[name]


def _parsed(path: str, text: str) -> _Module:
    nodes = list(ast.walk(ast.parse(text)))
    return _Module(
        path=path,
        text=text,
        imports=tuple(name for node in nodes for name in _imported(node)),
        tables=tuple(name for node in nodes for name in _table(node)),
    )


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module is not None:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _table(node: ast.AST) -> Iterator[str]:
    """The table of `Tunable(name="...")`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Tunable":
        named = (word.value for word in node.keywords if word.arg == "name")
        yield from (str(value.value) for value in named if isinstance(value, ast.Constant))
