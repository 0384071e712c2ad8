"""Checkpoints that ship with the engine."""
