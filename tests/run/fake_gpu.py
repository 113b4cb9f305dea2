"""A GPU that is none: the functions of ``torch.cuda`` over the CPU's tensors, with queues whose order is checked.

Every kernel, also of a recomputation, passes through ``FakeGPU`` as an outer dispatch mode. Queues have vector clocks:
a kernel may read bytes only if it follows the kernel that wrote them, write only what all readers are done with, and
memory may be freed only if its own queue follows every use, or the allocator was told of the use.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tensortide.run import device, sizes
from tensortide.run.block import Block, storage_of, tensors_of

KERNEL_NS = 1_000_000


class Queue:
    """A stream."""

    def __init__(self, gpu: FakeGPU, number: int) -> None:
        self.gpu, self.stream_id = gpu, number
        self.clock: dict[int, int] = {number: 0}
        self.time_ns = 0

    def record_event(self, event: Event | None = None) -> Event:
        event = event if event is not None else Event(self.gpu)
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        self.gpu.calls.append(("wait", self.stream_id))
        for number, tick in event.clock.items():
            self.clock[number] = max(self.clock.get(number, 0), tick)

    def wait_stream(self, other: Queue) -> None:
        self.wait_event(other.record_event())


class Event:
    """A place in a queue."""

    def __init__(self, gpu: FakeGPU) -> None:
        self.gpu = gpu
        self.clock: dict[int, int] = {}
        self.time_ns = 0

    def record(self, queue: Queue) -> None:
        self.gpu.calls.append(("record", queue.stream_id))
        self.clock, self.time_ns = dict(queue.clock), queue.time_ns

    def synchronize(self) -> None:
        """What is queued from now on follows this place."""
        for queue in self.gpu.queues:
            queue.wait_event(self)

    def query(self) -> bool:
        return self.gpu.idle

    def elapsed_time(self, other: Event) -> float:
        assert self.gpu.idle
        return (other.time_ns - self.time_ns) / 1e6


@dataclass
class Memory:
    """A block of the allocator."""

    owner: int
    nbytes: int
    written: tuple[int, int]
    uses: dict[int, int] = field(default_factory=dict)
    recorded: set[int] = field(default_factory=set)


class FakeGPU(TorchDispatchMode):
    """The module, the allocator and the kernels. ``races``: what went wrong. ``capacity``: bytes there are."""

    def __init__(self, capacity: int = 1 << 60) -> None:
        super().__init__()
        self.capacity = capacity
        self.calls: list[Any] = []
        self.races: list[str] = []
        self.kernels: list[str] = []
        self.memories: dict[int, Memory] = {}
        self.queues: list[Queue] = []
        self.current = self.new_stream()
        self.default_generators: tuple[torch.Generator, ...] = (torch.default_generator,)
        self.idle = True
        self.cached = 0
        self.kernel_ns = {"aten::empty": 0}

    # The module

    def new_stream(self) -> Queue:
        self.queues.append(Queue(self, len(self.queues)))
        return self.queues[-1]

    def Stream(self, device: Any = None) -> Queue:  # noqa: N802
        return self.new_stream()

    @contextlib.contextmanager
    def stream(self, queue: Queue) -> Iterator[None]:
        before, self.current = self.current, queue
        try:
            yield
        finally:
            self.current = before

    def Event(self, enable_timing: bool = False) -> Event:  # noqa: N802
        return Event(self)

    def current_stream(self, device: Any = None) -> Queue:
        return self.current

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def memory_allocated(self, device: Any = None) -> int:
        return sum(memory.nbytes for memory in self.memories.values())

    def memory_reserved(self, device: Any = None) -> int:
        return self.memory_allocated() + self.cached

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        return self.capacity - self.memory_reserved(), self.capacity

    def empty_cache(self) -> None:
        self.calls.append("empty_cache")

    def synchronize(self, device: Any = None) -> None:
        self.calls.append("synchronize")
        self.idle = True
        for queue in self.queues:
            for other in self.queues:
                queue.clock[other.stream_id] = other.clock[other.stream_id]

    # Kernels

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.is_view or func in (torch.ops.aten.set_.source_Storage_storage_offset, torch.ops.aten.detach.default):
            return func(*args, **kwargs)
        tensors = tensors_of((*args, *kwargs.values()))
        if any(tensor.is_meta for tensor in tensors) or kwargs.get("device") == torch.device("meta"):
            return func(*args, **kwargs)
        name = func._schema.name
        self.kernels.append(name)
        given = [storage_of(tensor) for tensor in tensors]
        written = [
            storage_of(t)
            for place, argument in enumerate(func._schema.arguments)
            if argument.alias_info and argument.alias_info.is_write
            for t in tensors_of(args[place : place + 1])
        ]
        queue = self.current
        queue.clock[queue.stream_id] += 1
        queue.time_ns += self.kernel_ns.get(name, KERNEL_NS)
        for handle in given:
            if handle.nbytes():
                self._use(name, handle, queue, handle._cdata in {w._cdata for w in written})
        result = func(*args, **kwargs)
        known = {handle._cdata for handle in given}
        for handle in {s._cdata: s for s in map(storage_of, tensors_of((result,)))}.values():
            if handle._cdata not in known:
                self._allocate(name, handle, queue)
        return result

    def _use(self, name: str, handle: Any, queue: Queue, writes: bool) -> None:
        now = queue.clock[queue.stream_id]
        memory = self.memories.get(handle._cdata)
        if memory is None:  # it was there before
            memory = self.memories[handle._cdata] = Memory(0, handle.nbytes(), (0, 0))
            weakref.finalize(handle, self.freed, handle._cdata)
        number, tick = memory.written
        if queue.clock.get(number, 0) < tick:
            self.races.append(f"{name} on {queue.stream_id} reads what is still being computed on {number}")
        if writes:
            late = [n for n, t in memory.uses.items() if queue.clock.get(n, 0) < t]
            self.races += [f"{name} on {queue.stream_id} overwrites what {n} still reads" for n in late]
            memory.written = queue.stream_id, now
        memory.uses[queue.stream_id] = now

    def _allocate(self, name: str, handle: Any, queue: Queue) -> None:
        now = queue.clock[queue.stream_id]
        if self.memory_allocated() + handle.nbytes() > self.capacity:
            self.calls.append(("denied", name))
            raise torch.OutOfMemoryError(f"out of memory. Tried to allocate {handle.nbytes() / (1 << 20):.2f} MiB.")
        self.memories[handle._cdata] = Memory(queue.stream_id, handle.nbytes(), (queue.stream_id, now))
        weakref.finalize(handle, self.freed, handle._cdata)

    # Memory

    def freed(self, key: int) -> None:
        memory = self.memories.pop(key, None)
        if memory is None:
            return
        own = self.queues[memory.owner].clock
        for number, tick in memory.uses.items():
            if number != memory.owner and number not in memory.recorded and own.get(number, 0) < tick:
                self.races.append(f"memory of {memory.owner} is freed while {number} uses it")

    def record(self, handle: Any, queue: Queue) -> None:
        self.calls.append(("record_stream", queue.stream_id))
        memory = self.memories.get(handle._cdata)
        if memory is not None:  # else a thread has filled it, whose kernels are not seen
            memory.recorded.add(queue.stream_id)


@contextlib.contextmanager
def fake_gpu(monkeypatch: pytest.MonkeyPatch, capacity: int = 1 << 60) -> Iterator[FakeGPU]:
    """Let the CPU be a FakeGPU for budgets."""
    gpu = FakeGPU(capacity)
    free, fill = Block.free, Block.fill

    def freeing(block: Block, held: bool) -> None:
        program = block()
        if held and program is not None:
            gpu.freed(program._cdata)
        free(block, held)

    def filling(block: Block, made: Any) -> None:
        program = block()
        if program is not None:
            known = gpu.memories.pop(made._cdata, None)  # not if a thread has filled it, whose kernels are not seen
            if known is not None:
                gpu.memories[program._cdata] = known
        fill(block, made)

    monkeypatch.setattr(device, "module_of", lambda kind: gpu)
    monkeypatch.setattr(device, "record_stream", gpu.record)
    for name in ("block", "device", "unfilled"):  # kernels of the end pass too
        monkeypatch.setattr(f"tensortide.run.{name}.NoModes", contextlib.nullcontext)
    monkeypatch.setattr(Block, "free", freeing)
    monkeypatch.setattr(Block, "fill", filling)
    monkeypatch.setattr("tensortide.run.runtime.sizes_on", functools.cache(sizes.sizes_on.__wrapped__))
    with gpu:
        yield gpu
