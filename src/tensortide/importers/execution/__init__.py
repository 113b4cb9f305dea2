"""Execution traces of PyTorch (``ExecutionTraceObserver``): what ran, on which tensors, without times."""
