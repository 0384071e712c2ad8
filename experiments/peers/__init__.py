"""Other engines on this host: what they are, and where `workbench peers install` puts them."""
