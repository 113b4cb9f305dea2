"""``tensortide remat``: a step under a memory budget, simulated."""
