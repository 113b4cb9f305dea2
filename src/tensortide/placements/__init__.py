"""Placements: where each op of a step runs on a machine of several devices, predicted and searched."""
