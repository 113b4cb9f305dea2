"""Experiments made of many simulated runs."""
