"""Steps run live: a training loop under a memory budget, on stock PyTorch."""
