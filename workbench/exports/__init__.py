"""Stored runs in the forms of other tools: each names what it cannot say, and invents nothing."""
