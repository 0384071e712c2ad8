"""The bench you stand at: runs, comparison, Pareto fronts, reports."""
