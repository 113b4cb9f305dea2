"""Simulators that the project had before, and plain ones: each plays on its own what one of ours plays."""
