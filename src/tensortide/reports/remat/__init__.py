"""Experiments with rematerialization as tables, figures and files."""
