"""Memory snapshots of PyTorch's CUDA allocator: what it allocated and released, where the program asked for it."""
