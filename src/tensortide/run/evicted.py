"""Storages that are evicted: any access to their bytes raises RuntimeError, in every thread, and from C++ too."""

from __future__ import annotations

import ctypes

import torch

from tensortide.run.torch_compat import NoModes, refuse_writes

resize = torch.UntypedStorage.resize_
"""As it was before anybody replaced it."""

_EXTENT = 64
"""Bytes of PyTorch's object for a storage that are looked at."""


def _snapshot(storage: torch.UntypedStorage) -> bytes:
    return ctypes.string_at(storage._cdata, _EXTENT)


def _flags() -> tuple[int, ...]:
    """Offsets of the flags by which any access to a storage raises: that one and, where it is another, the one by which
    the others are looked at. Empty where they are not found.

    PyTorch has a function that sets them only where it is built for CUDA. A neighbour can be set everywhere: the flag
    for writes alone.
    """
    tensor = torch.empty(0)
    storage = tensor.untyped_storage()
    before = _snapshot(storage)
    refuse_writes(tensor)
    changed = [place for place, pair in enumerate(zip(before, _snapshot(storage), strict=True)) if pair[0] != pair[1]]
    if len(changed) != 2 or changed[1] != changed[0] + 1 or changed[1] + 1 >= _EXTENT or before[changed[1] + 1]:
        return ()
    flags = (changed[1] + 1, changed[0])
    tried = torch.UntypedStorage(0)
    _set(tried, flags)
    try:
        tried.data_ptr()
    except RuntimeError:
        return flags
    return ()


def _set(storage: torch.UntypedStorage, flags: tuple[int, ...]) -> None:
    for place in flags:
        ctypes.memset(storage._cdata + place, 1, 1)


with NoModes():
    _FLAGS = _flags()


def evict(storage: torch.UntypedStorage) -> None:
    """Free the bytes of ``storage``. Swapping in those of another storage makes it an ordinary one again."""
    if not _FLAGS:
        resize(storage, 0)
        return
    without = torch.UntypedStorage(0, device=storage.device)
    _set(without, _FLAGS)
    storage._swap_data_ptr_(without)  # type: ignore[attr-defined]
