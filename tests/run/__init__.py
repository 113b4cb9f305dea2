"""Live runs under a memory budget."""
