"""The pages: `streamlit run dashboards/app.py -- --store PATH`, or `python -m dashboards`."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

import workbench as wb
from dashboards import address
from dashboards.parts import apply_style

# Not "pages": streamlit serves a folder of that name by itself, past this file, to whoever
# opens a page other than the first on a server that has not run yet.
PAGES = Path(__file__).parent / "views"
WORDMARK = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="198" height="28" viewBox="0 0 198 28">'
    '<path d="M3 23 V15 H11 V10 H19 V5" fill="none" stroke="#0072B2" stroke-width="2.6"/>'
    '<circle cx="3" cy="23" r="2.6" fill="#0072B2"/><circle cx="19" cy="5" r="2.6" fill="#E69F00"/>'
    '<text x="30" y="19.5" font-family="Source Sans,Source Sans Pro,Helvetica,Arial,sans-serif" '
    'font-size="16" font-weight="600" fill="#7b8794">inference workbench</text></svg>'
)


FAVICON = WORDMARK.split("<text")[0].replace("0 0 198 28", "-2 0 28 28") + "</svg>"


# The pages by the kind of their question; those without a kind are always in sight.
GROUPS = {
    "": ("overview", "live", "pareto"),
    "Explore": ("compare", "imports", "sweep_explorer", "trends"),
    "Explain": ("latency", "speculation", "replay_and_cache", "energy_and_cost"),
    "Record": ("run", "environment", "report"),
}
TITLES = {"run": "Run and trials"}


def _pages() -> dict[str, list[st.Page]]:
    """Every page; the address of each is the name of its file."""
    return {group: [_page(name) for name in names] for group, names in GROUPS.items()}


def _page(name: str) -> st.Page:
    title = TITLES.get(name, name.replace("_", " ").capitalize())
    first = name == "overview"
    return st.Page(PAGES / f"{name}.py", title=title, default=first, url_path="" if first else name)


def main() -> None:
    """Set the frame of every page and show the one that the address names."""
    st.set_page_config(
        page_title="Inference workbench",
        page_icon=FAVICON,
        layout="wide",
        menu_items={"Get help": None, "Report a bug": None, "About": None},
    )
    apply_style()
    address.start()
    st.logo(WORDMARK, size="large")
    page = st.navigation(_pages(), position="top")
    try:
        page.run()
    except wb.BenchError as error:
        st.error(str(error).replace("[", "\\["))


if __name__ == "__main__":
    main()
