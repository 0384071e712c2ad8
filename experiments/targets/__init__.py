"""Engines to put under load, behind one protocol."""
