"""Report: what do I hand over?"""

from __future__ import annotations

import streamlit as st

import workbench as wb
from dashboards import address, markup, parts, reading
from workbench.figures import plural
from workbench.report import FORMATS, bundle, report_files

KINDS = {
    "html": "HTML: one file that needs no network",
    "md": "Markdown",
    "csv": "CSV of all trials",
}
MIMES = {"html": "text/html", "md": "text/markdown", "csv": "text/csv", "json": "application/json"}


def main() -> None:
    """The report of one run: which formats, what it says, and its files."""
    summary = parts.opened()
    if summary is None:
        return
    with st.sidebar:
        chosen = address.choose_some("Formats", FORMATS, "formats", words=KINDS.__getitem__)
    parts.heading(summary, "What do I hand over?")
    files = _files(reading.store_path(), summary.run_id, tuple(chosen), _count(summary))
    parts.html(markup.section(f"{plural(len(files), 'file')} with their checksums"))
    with st.container(horizontal=True):
        st.download_button(
            "All files (zip)", data=bundle(files), file_name=f"{summary.run_id}.zip",
            mime="application/zip", icon=":material/folder_zip:", type="primary",
            key="report.bundle", on_click="ignore",
        )  # fmt: skip
        for name, content in files.items():
            st.download_button(
                name, data=content, file_name=name, key=f"report.{name}", on_click="ignore",
                mime=MIMES.get(name.rpartition(".")[2], "text/plain"),
            )  # fmt: skip
    st.code(f"workbench report {summary.run_id} --store {reading.store_path()}", "bash")
    parts.html(markup.section("Preview"))
    if "report.md" in files:
        with st.container(border=True, key="preview"):
            st.markdown(files["report.md"].decode("utf-8"))
    else:
        parts.html(markup.note("Choose Markdown among the formats to see what the report says."))


def _count(summary: wb.RunSummary) -> int:
    return sum(summary.counts.values())


@st.cache_data(show_spinner="Writing the report", max_entries=8)
def _files(store: str, run_id: str, formats: tuple[str, ...], stored: int) -> dict[str, bytes]:
    """`stored` is part of the key: a run that goes on gets a new report."""
    del stored
    return report_files(wb.Store(store).run(run_id), formats)


if __name__ == "__main__":
    main()
