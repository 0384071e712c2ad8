"""Verifying drafts by the tokens that the target chooses."""
