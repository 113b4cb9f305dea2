"""Costs as formulas in hyperparameters."""
