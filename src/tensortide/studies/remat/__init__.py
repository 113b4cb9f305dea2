"""Experiments: many runs of a step, under many budgets by many policies, on all cores and resumable."""
