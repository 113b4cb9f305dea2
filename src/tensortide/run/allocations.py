"""Most memory that one call takes, from the record that PyTorch's allocators keep for profilers.

The record has every allocation of the calling thread on the CPU and on GPUs, also those that are freed before the call
returns: copies of operands, packed weights, scratch of all threads of a kernel. It does not have what libraries take
past PyTorch's allocators. Starting and reading it takes some 15 microseconds.
"""

from __future__ import annotations

import torch
from torch._C._autograd import _disable_profiler_legacy, _enable_profiler_legacy, _profiler_enabled
from torch._C._profiler import ProfilerConfig, ProfilerState, _ExperimentalConfig

_MEMORY_ALONE = ProfilerConfig(ProfilerState.CPU, False, True, False, False, False, _ExperimentalConfig())


def start() -> bool:
    """Begin a record in this thread; False if a profiler is at work there already, and none can begin."""
    if _profiler_enabled():
        return False
    _enable_profiler_legacy(_MEMORY_ALONE)
    return True


def stop(device: torch.device) -> int:
    """End the record; return the most bytes that it has on ``device`` at once, beyond those at its beginning."""
    on_cpu = device.type == "cpu"
    now = most = 0
    for events in _disable_profiler_legacy():
        for event in events:
            now += event.cpu_memory_usage() if on_cpu else event.cuda_memory_usage()
            most = max(most, now)
    return most
