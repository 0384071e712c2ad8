"""Evals: questions with known answers, asked under load, so that accuracy stands beside speed."""
