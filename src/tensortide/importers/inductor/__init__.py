"""Graphs that PyTorch's compiler dumps as text, and the same graphs taken from a model directly."""
