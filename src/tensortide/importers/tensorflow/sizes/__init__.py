"""Sizes as expressions: unknowns, equations between them, trip counts of loops, and names for what stays free."""
