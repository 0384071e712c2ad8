"""Log-probabilities of tokens, and the most likely ones."""
