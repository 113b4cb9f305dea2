"""Graphs that PyTorch's compiler dumps as text."""
