"""Metrics of a step or a model: named figures in one table, compared, and checked."""
