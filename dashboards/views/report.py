"""Report: what do I hand over?"""

from __future__ import annotations

import streamlit as st

import workbench as wb
from dashboards import address, markup, parts, reading
from workbench.bundle import bundle, with_runs
from workbench.figures import plural
from workbench.report import DATA, FORMATS, SECTIONS, report_files

KINDS = {
    "html": "HTML: one file that needs no network",
    "md": "Markdown",
    "csv": "CSV of all trials",
    "parquet": "Parquet of all requests",
    "llm-d": "llm-d benchmark reports",
}
MIMES = {"html": "text/html", "md": "text/markdown", "csv": "text/csv", "json": "application/json"}
SHOWN = ("html", "md", "csv")  # asked for unless others are
MAX_RUNS = 8
MAX_BUTTONS = 12  # the archive holds every file


def main() -> None:
    """The report of one run or several: what is in it, how it reads, and its files."""
    runs = parts.stored_runs()
    if not runs:
        return
    with st.sidebar:
        chosen = _runs(runs)
        formats = address.choose_some(
            "Formats", [*FORMATS, *DATA], "formats", words=lambda name: KINDS.get(name, name)
        )
        formats = formats if address.parameter("formats") else list(SHOWN)
        sections = address.choose_some("Sections", SECTIONS, "sections", words=_words)
    parts.html(markup.headline("What do I hand over?", _links(chosen)))
    if not chosen:
        parts.html(markup.note("Choose a run at the side."))
        return
    labels = dict.fromkeys(label for name in chosen for label in runs[name].labels)
    if labels:
        parts.html(markup.banner(list(labels)))
    key = tuple((name, sum(runs[name].counts.values())) for name in chosen)
    files = _files(reading.store_path(), key, tuple(formats), tuple(sections))
    _downloads(files, chosen)
    _preview(files)


def _runs(runs: dict[str, wb.RunSummary]) -> list[str]:
    """The runs of the address; the newest by default."""
    asked = [name for name in (address.parameter("runs") or "").split(",") if name in runs]
    one = address.parameter("run")
    asked = asked or [one if one in runs else next(iter(runs))]
    picked = st.multiselect(
        "Runs", list(runs), default=asked[:MAX_RUNS], max_selections=MAX_RUNS,
        format_func=lambda name: parts.run_words(runs[name]), key="report.runs",
    )  # fmt: skip
    address.remember("runs", ",".join(picked) or None)
    return picked


def _words(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _links(chosen: list[str]) -> list[str]:
    return [markup.anchor(name, address.link("run", run=name)) for name in chosen]


def _downloads(files: dict[str, bytes], chosen: list[str]) -> None:
    parts.html(markup.section(f"{plural(len(files), 'file')} with their checksums"))
    store = reading.store_path()
    with st.container(horizontal=True):
        st.download_button(
            "All files (zip)", data=lambda: bundle(files), file_name=f"{chosen[0]}-report.zip",
            mime="application/zip", icon=":material/folder_zip:", type="primary",
            key="report.archive", on_click="ignore",
        )  # fmt: skip
        st.download_button(
            "Bundle with the runs", data=lambda: _bundle(store, files, chosen), type="secondary",
            file_name=f"{chosen[0]}-bundle.zip", mime="application/zip", key="report.bundle",
            help="What `workbench reproduce` reads.", on_click="ignore",
        )  # fmt: skip
        for name, content in list(files.items())[:MAX_BUTTONS]:
            st.download_button(
                name, data=content, file_name=name.rpartition("/")[2], key=f"report.{name}",
                mime=MIMES.get(name.rpartition(".")[2], "text/plain"), on_click="ignore",
            )  # fmt: skip
    st.code(f"workbench report {' '.join(chosen)} --store {store}", "bash")


def _bundle(store: str, files: dict[str, bytes], chosen: list[str]) -> bytes:
    return bundle(with_runs(files, [wb.Store(store).run(name) for name in chosen]))


def _preview(files: dict[str, bytes]) -> None:
    parts.html(markup.section("Preview"))
    if "report.md" not in files:
        parts.html(markup.note("Choose Markdown among the formats to see what the report says."))
        return
    with st.container(border=True, key="preview"):
        st.markdown(files["report.md"].decode("utf-8"))


@st.cache_data(show_spinner="Writing the report", max_entries=8)
def _files(
    store: str,
    runs: tuple[tuple[str, int], ...],
    formats: tuple[str, ...],
    sections: tuple[str, ...],
) -> dict[str, bytes]:
    """`runs` carries how many trials are stored: a run that goes on gets a new report."""
    found = [wb.Store(store).run(name) for name, _ in runs]
    return report_files(found, formats, sections=sections)


if __name__ == "__main__":
    main()
