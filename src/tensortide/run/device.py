"""Devices as a live budget uses them: memory, random generators, the error for memory that has run out, and queues.

``LiveDevice`` is the CPU: ops run one after another, and are over when they return. ``Accelerator`` is whatever has the
functions of ``torch.cuda`` in its own module of ``torch``: work is queued on streams, and memory belongs to an
allocator that keeps what tensors have freed.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from tensortide.errors import NotHere, RunError
from tensortide.recorder.surroundings import replaced
from tensortide.run.block import Storage
from tensortide.run.gpu_mover import StreamMover
from tensortide.run.host_memory import host_memory
from tensortide.run.movers import Mover, TransferMode
from tensortide.run.queues import Events, Streams
from tensortide.run.torch_compat import C, NoModes

_NEEDED = (
    *("current_device", "current_stream", "default_generators", "device_count", "empty_cache", "Event"),
    *("is_available", "mem_get_info", "memory_allocated", "memory_reserved", "synchronize"),
)
"""What the module of an accelerator must have."""
_ASKED = re.compile(r"[Tt]ri(?:ed|es) to allocate (\d+(?:\.\d+)?) ?(bytes|[KMGT]iB)")
_SIGNS = (
    *("DefaultCPUAllocator: can't allocate memory", "CUDA error: out of memory"),
    *("CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED"),
)
"""Errors for want of memory that are no OutOfMemoryError: of the CPU, and of libraries that bypass the allocator."""
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


class LiveDevice:
    """The CPU."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def memory(self) -> tuple[int, int]:
        """Free and total bytes that tensors of this process may have."""
        return host_memory()

    def streams(self) -> Streams | None:
        """Order between the streams of the device; None if it has a single queue."""
        return None

    def timer(self) -> Events | None:
        """Durations of ops that go on after they have returned; None if ops are over by then."""
        return None

    def fits(self, nbytes: int) -> bool:
        """True if the allocator has ``nbytes`` now. Asked before ops that cannot be repeated."""
        return True

    def reclaim(self) -> None:
        """Wait for all work, and give back the memory that the allocator keeps."""

    def synchronize(self) -> None:
        """Wait for all work."""

    def mover(self, transfers: TransferMode) -> Mover:
        """Moves storages of the device to tiers and back."""
        return Mover(transfers)


class Accelerator(LiveDevice):
    """A device with the functions of ``module``."""

    def __init__(self, device: torch.device, module: Any) -> None:
        super().__init__(device)
        self.module = module
        raw = getattr(C, f"_{device.type}_getCurrentRawStream", None)
        self._raw = raw if device.type != "cpu" else None

    def memory(self) -> tuple[int, int]:
        """Blocks that the allocator keeps and no tensor uses are free; a share set for this process is the total."""
        module, device = self.module, self.device
        free, total = module.mem_get_info(device)
        reserved = module.memory_reserved(device)
        share = getattr(module, "get_per_process_memory_fraction", None)
        if share is not None:
            total = min(total, int(total * share(device)))
            free = min(free, total - reserved)
        return max(0, free + reserved - module.memory_allocated(device)), total

    def streams(self) -> Streams:
        return Streams(self.stream_id, self.stream, record_stream)

    def timer(self) -> Events:
        return Events(lambda: self.module.Event(enable_timing=True), self.stream, self.synchronize)

    def stream(self) -> Any:
        """The current stream."""
        return self.module.current_stream(self.device)

    def stream_id(self) -> int:
        """A number for the current stream: faster to get than the stream."""
        number: int = self._raw(self.device.index) if self._raw is not None else self.stream().stream_id
        return number

    def fits(self, nbytes: int) -> bool:
        if not nbytes:
            return True
        try:
            torch.UntypedStorage(nbytes, device=self.device)
        except RuntimeError as error:
            if asked_bytes(error) is None:
                raise
            return False
        return True

    def reclaim(self) -> None:
        self.synchronize()
        self.module.empty_cache()

    def mover(self, transfers: TransferMode) -> Mover:
        return StreamMover(transfers, self.device, self.module)

    def synchronize(self) -> None:
        self.module.synchronize(self.device)


def module_of(kind: str) -> Any:
    """The functions of accelerators of a ``kind``; None for the CPU. Raises RunError if a budget cannot use them,
    NotHere if there are none."""
    if kind == "cpu":
        return None
    try:
        module = torch.get_device_module(kind)
    except RuntimeError:
        raise RunError(f"a memory budget is of a CPU or a GPU: it cannot be of {kind!r}") from None
    missing = [name for name in _NEEDED if not hasattr(module, name)]
    if missing:
        raise RunError(f"a memory budget cannot be of {kind!r}: {module.__name__} has no {', '.join(missing)}")
    if not module.is_available():
        raise NotHere(f"no {kind} device was found: choose the device 'cpu' for a budget of the host's memory")
    return module


def device_of(given: str | torch.device | None = None) -> LiveDevice:
    """The device that ``given`` names, with its number: without one the current of its kind. None: the current GPU, or
    the CPU where there is none. Raises NotHere if it is not there, RunError if it is none."""
    if given is None:
        given = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(given)
    except (RuntimeError, TypeError):
        raise RunError(f"{given!r} names no device: 'cpu', 'cuda' and 'cuda:1' do") from None
    module = module_of(device.type)
    if module is None:
        return LiveDevice(device)
    if device.type != "cpu":
        index, count = _number(device, module), module.device_count()
        if index >= count:
            raise NotHere(f"there is no {device}: {count} {device.type} devices were found, numbered from 0")
        device = torch.device(device.type, index)
    return Accelerator(device, module)


def _number(device: torch.device, module: Any) -> int:
    """Number of ``device``; without one that of the current of its kind."""
    index: int | None = device.index
    return int(module.current_device()) if index is None else index


def default_generators(devices: Iterable[torch.device]) -> list[torch.Generator]:
    """The generators that an op on ``devices`` may draw from unless it is given another: theirs, and that of the CPU,
    where some ops on accelerators draw short permutations."""
    found = [torch.default_generator]
    for device in devices:
        if device.type not in ("cpu", "meta"):
            module = torch.get_device_module(device.type)
            found.append(generator_of(module, _number(device, module)))
    return found


def generator_of(module: Any, index: int) -> torch.Generator:
    """The default generator of device number ``index`` of ``module``."""
    if hasattr(module, "init"):
        module.init()  # before that there are none
    found: torch.Generator = module.default_generators[index]
    return found


# -- memory that has run out ------------------------------------------------------------------------


def asked_bytes(error: BaseException) -> int | None:
    """Bytes that an allocator was asked for in vain, 0 if ``error`` does not tell; None if it is another error."""
    text = str(error)
    if not isinstance(error, torch.OutOfMemoryError) and not any(sign in text for sign in _SIGNS):
        return None
    found = _ASKED.search(text)
    return int(float(found[1]) * _UNITS[found[2]]) if found else 0


# -- storages ---------------------------------------------------------------------------------------


def record_stream(storage: Storage, stream: Any) -> None:
    """Tell the allocator that ``stream`` uses the bytes of ``storage``: once freed, they are not used again before the
    work queued on ``stream`` by then is over."""
    with NoModes():
        torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage).record_stream(stream)


# -- graphs -----------------------------------------------------------------------------------------

_GRAPHS = (("cuda", "CUDAGraph"), ("xpu", "XPUGraph"), ("accelerator", "Graph"))
_OF_GRAPHS = ("capture_begin", "replay")


@contextlib.contextmanager
def graphs_refused() -> Iterator[None]:
    """Refuse, in one line, to capture or to replay graphs of kernels while a budget is open."""
    with contextlib.ExitStack() as stack:
        for kind, name in _GRAPHS:
            module: Any = getattr(torch, kind, None)
            graph = getattr(module, name, None)
            if graph is None:
                continue
            for method in _OF_GRAPHS:
                stack.enter_context(replaced(graph, method, _refuses(f"{name}.{method}")))
            if hasattr(module, "graph"):
                stack.enter_context(replaced(module.graph, "__enter__", _refuses(f"torch.{kind}.graph")))
            if hasattr(module, "make_graphed_callables"):
                refuses = _refuses(f"torch.{kind}.make_graphed_callables")
                stack.enter_context(replaced(module, "make_graphed_callables", refuses))
        yield


def _refuses(what: str) -> Callable[..., Any]:
    def refused(*args: Any, **kwargs: Any) -> Any:
        raise RunError(
            f"{what}: graphs of kernels use memory by address, and a memory budget evicts what is there; run eagerly, "
            "or outside of `with tensortide.budget(...)`"
        )

    return refused


def elsewhere(device: torch.device, tensors: Iterable[torch.Tensor]) -> bool:
    """True if more than a number is read from another device than ``device``. Such an op is not recomputed: it would
    hold memory that no budget is of, and host memory may change unseen, by a loader that fills it again."""
    return any(tensor.device != device and tensor.numel() > 1 for tensor in tensors)


def has_gpu() -> bool:
    """Tell whether a step runs on a GPU here: a plan of its ops does not fit those of a CPU."""
    return torch.cuda.is_available()
