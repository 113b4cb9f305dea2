"""Differences of steps: where one step costs more than another, by module, op, phase, tensor at the peak and time."""
