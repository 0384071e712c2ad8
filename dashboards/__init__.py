"""Streamlit pages that read through the workbench."""
