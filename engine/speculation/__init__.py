"""Guessing tokens ahead and keeping only what the target would have said."""
