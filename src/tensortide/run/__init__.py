"""Steps run live: a training loop under a memory budget, on stock PyTorch."""

import tensortide.run.torch_compat  # noqa: F401  # before all else: it says what is wrong with PyTorch
