"""Data only: README.md is its card."""
