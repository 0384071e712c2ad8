"""Model architectures behind one protocol."""
