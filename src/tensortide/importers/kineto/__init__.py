"""A profiler's trace with shapes as a Graph with times, without the model."""
