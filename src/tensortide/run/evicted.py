"""Storages that are evicted: any access to their bytes raises RuntimeError, in every thread, and from C++ too; and
storages that exchange their bytes."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch

from tensortide.errors import RunError, TorchUnavailable
from tensortide.recorder.code_paths import is_internal
from tensortide.run.torch_compat import NoModes, refuse_writes, swap_data_ptr

resize = torch.UntypedStorage.resize_
"""As it was before anybody replaced it."""

_UNREADABLE = "Cannot access data pointer of Storage that is invalid"
"""What PyTorch says where the bytes of an evicted storage are read."""
_EXTENT = 64
"""Bytes of PyTorch's object for a storage that are looked at."""
_WORDS = 5
"""Words that hold the bytes of a storage: their address, the owner, the function that frees them, device and size."""


def snapshot(storage: torch.UntypedStorage) -> bytes:
    """PyTorch's object for ``storage``: addresses of the bytes and of their owner among others."""
    return ctypes.string_at(storage._cdata, _EXTENT)


def _flags() -> tuple[int, ...]:
    """Offsets of the flags by which any access to a storage raises: that one and, where it is another, the one by which
    the others are looked at. Empty where they are not found.

    PyTorch has a function that sets them only where it is built for CUDA. A neighbour can be set everywhere: the flag
    for writes alone.
    """
    tensor = torch.empty(0)
    storage = tensor.untyped_storage()
    before = snapshot(storage)
    refuse_writes(tensor)
    changed = [place for place, pair in enumerate(zip(before, snapshot(storage), strict=True)) if pair[0] != pair[1]]
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


def _bytes_of(storage: torch.UntypedStorage, start: int, length: int) -> Any:
    """A part of PyTorch's object for ``storage``, to read and to write; the interpreter's lock is held throughout."""
    return (ctypes.c_char * length).from_address(storage._cdata + start)


def _exchanged() -> tuple[tuple[int, int], ...]:
    """Parts of PyTorch's object for a storage, as (start, length), that two of them exchange with their bytes.

    They are the address, its owner, the function that frees it, the device and the size, five words in a row, and the
    flags. Raises TorchUnavailable where these are not found.
    """
    one, other = torch.UntypedStorage(24), torch.UntypedStorage(40)
    address = one.data_ptr().to_bytes(8, sys.byteorder)
    parts = ((start := snapshot(one).find(address), _WORDS * 8), *((place, 1) for place in _FLAGS))
    sizes = [int.from_bytes(snapshot(storage)[start + 32 : start + 40], sys.byteorder) for storage in (one, other)]
    if start < 0 or sizes != [24, 40]:
        raise TorchUnavailable(
            f"a memory budget needs PyTorch 2.12 or newer, and {torch.__version__} is installed: pip install --upgrade "
            "torch (everything but tensortide run and tensortide.budget works with this one)"
        )
    return parts


def _exchange(one: torch.UntypedStorage, other: torch.UntypedStorage) -> None:
    for start, length in _PARTS:
        here, there = _bytes_of(one, start, length), _bytes_of(other, start, length)
        here.raw, there.raw = there.raw, here.raw


exchange: Callable[[torch.UntypedStorage, torch.UntypedStorage], None] = swap_data_ptr or _exchange
"""Exchange the bytes of two storages of one device, their sizes, and whether access to them raises. PyTorch before 2.12
has no function that does."""
with NoModes():
    _PARTS = _exchanged() if swap_data_ptr is None else ()


def unreadable(error: object) -> bool:
    """True if ``error`` says that the bytes of an evicted storage were read."""
    return isinstance(error, RuntimeError) and _UNREADABLE in str(error)


def read_by(what: object) -> RunError:
    """The error for ``what`` has read the bytes of an evicted storage."""
    return RunError(
        f"{what} reads the memory of a tensor that is evicted, by its address: keep it resident before "
        "(tensortide.live.pin(tensor)), or let what reads it be an op (torch.library.custom_op), whose arguments are "
        "resident"
    )


def line_of(traceback: TracebackType | None) -> str:
    """The innermost line of the program in ``traceback``."""
    place = "unknown line"
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if not is_internal(file):
            place = f"{file}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return place


def evict(storage: torch.UntypedStorage) -> None:
    """Free the bytes of ``storage``. Swapping in those of another storage makes it an ordinary one again."""
    if not _FLAGS:
        resize(storage, 0)
        return
    without = torch.UntypedStorage(0, device=storage.device)
    _set(without, _FLAGS)
    exchange(storage, without)
