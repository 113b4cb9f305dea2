"""Most memory that one call takes, from the record that PyTorch's allocators keep for profilers.

The record has every allocation of the calling thread on the CPU and on GPUs, also those that are freed before the call
returns: copies of operands, packed weights, scratch of all threads of a kernel. It does not have what libraries take
past PyTorch's allocators. Starting and reading it takes some 15 microseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from tensortide.run.block import address_of
from tensortide.run.torch_compat import (
    ExperimentalConfig,
    ProfilerConfig,
    ProfilerState,
    is_profiled,
    start_profiler,
    stop_profiler,
)

_MEMORY_ALONE = ProfilerConfig(ProfilerState.CPU, False, True, False, False, False, ExperimentalConfig())


def _forgetting() -> Callable[[int], Any]:
    """A function that lets the CPU allocator forget an address, where its library has the symbols for it."""
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
        reporter, forget = (library[name] for name in _SYMBOLS)
        reporter.restype, forget.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_void_p)
        forget.restype = None
        own = reporter()
        return lambda address: forget(own, address)
    return lambda address: None


_SYMBOLS = ("_ZN3c1025profiledCPUMemoryReporterEv", "_ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv")
_forget = _forgetting()


def start() -> bool:
    """Begin a record in this thread; False if a profiler is at work there already, and none can begin."""
    if is_profiled():
        return False
    start_profiler(_MEMORY_ALONE)
    return True


def stop(device: torch.device, kept: Iterable[torch.UntypedStorage] = ()) -> int:
    """End the record; return the most bytes that it has on ``device`` at once, beyond those at its beginning.

    ``kept``: storages that it has seen, and that outlive it. The CPU allocator would remember their sizes, and tell
    them to a later profiler when something else at these addresses is freed.
    """
    on_cpu = device.type == "cpu"
    for storage in kept:
        if storage.device.type == "cpu" and storage.resizable() and storage.nbytes():
            with contextlib.suppress(RuntimeError):  # a size, but no memory
                _forget(address_of(storage))
    now = most = 0
    for events in stop_profiler():
        for event in events:
            now += event.cpu_memory_usage() if on_cpu else event.cuda_memory_usage()
            most = max(most, now)
    return most
