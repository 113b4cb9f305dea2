"""Placements: on which device of a cluster each op runs."""
