"""Figures that another tool reports of a model, computed from our Graph by its definitions, and why they differ."""
