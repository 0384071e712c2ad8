"""The sweeps that are published with the bench, as YAML."""
