"""`python -m dashboards --store PATH [--port N] [--address HOST]`: serve the pages."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

HERE = Path(__file__).parent
FLAGS = {
    "server.headless": "true",
    "server.fileWatcherType": "none",
    "browser.gatherUsageStats": "false",
    "client.toolbarMode": "viewer",
    "client.showErrorDetails": "type",
    "client.showErrorLinks": "false",
}


def command(store: str | Path, port: int | None, address: str = "127.0.0.1") -> list[str]:
    """The command that serves the pages of `store`; port None lets streamlit choose from 8501."""
    flags = {**FLAGS, "server.address": address, **dict(_theme_flags())}
    if port is not None:
        flags["server.port"] = str(port)
    return [
        *(sys.executable, "-m", "streamlit", "run", str(HERE / "app.py")),
        *(f"--{name}={value}" for name, value in flags.items()),
        *("--", "--store", str(store)),
    ]


def _theme_flags() -> Iterator[tuple[str, str]]:
    tables = tomllib.loads((HERE / "theme.toml").read_text(encoding="utf-8"))
    yield from _flat(tables, "")


def _flat(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str(value).lower() if isinstance(value, bool) else str(value)


def main() -> int:
    """Serve until interrupted; the exit code of streamlit, 0 after an interrupt."""
    parser = argparse.ArgumentParser(prog="python -m dashboards", description=__doc__)
    parser.add_argument("--store", default="results", help="folder of the stored runs")
    parser.add_argument("--port", type=int, default=None, help="port to serve on")
    parser.add_argument("--address", default="127.0.0.1", help="address to serve on")
    chosen = parser.parse_args()
    try:
        return subprocess.call(command(chosen.store, chosen.port, chosen.address))
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
