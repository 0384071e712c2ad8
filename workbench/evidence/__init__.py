"""The whole evidence of a device in one command, within a time: `python -m workbench.evidence`."""
