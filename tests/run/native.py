"""Native code as the dispatcher knows it: it allocates by PyTorch's ops, and reads and writes by address."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

address_of = torch.Tensor.data_ptr
"""As C++ asks for it: unseen by a budget."""


def floats(tensor: Tensor) -> ctypes.Array[ctypes.c_float]:
    """The numbers of a contiguous ``tensor``; MemoryError where it has no memory, as an extension would fail."""
    address = address_of(tensor)
    if not address and tensor.numel():
        raise MemoryError("native code reads a tensor without memory")
    return (ctypes.c_float * tensor.numel()).from_address(address)


def put(tensor: Tensor, numbers: Sequence[float]) -> None:
    """Write the first elements of ``tensor``, unseen."""
    floats(tensor)[: len(numbers)] = list(numbers)
