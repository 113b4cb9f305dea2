"""Measured durations of ops: in the running step, or op by op in isolation."""
