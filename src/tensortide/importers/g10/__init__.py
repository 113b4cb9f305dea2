"""Kernel traces and liveness files of G10 (MICRO 2023) and of the tensor liveness tool that came from it."""
