"""Measured durations of ops: in the running step, or op by op in isolation."""

import tensortide.recorder.torch_compat  # noqa: F401  # before all else: it says what is wrong with PyTorch
