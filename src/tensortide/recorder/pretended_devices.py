"""Streams, events and numbers of the pretended GPU, and the answers of PyTorch's core about it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

CUDA = torch.device("cuda", 0)
Answer = Callable[..., Any]


def answer(value: Any) -> Answer:
    """A function of any arguments that returns ``value``."""
    return lambda *args, **kwargs: value


def in_place_of(owner: Any, name: str, given: Any) -> Any:
    """Present ``given`` as the attribute ``name`` of ``owner``: a function as an object of its own, with the name, the
    module and the signature of the real one. PyTorch's compiler has a rule for each object."""
    if not isinstance(given, FunctionType):
        return given

    def pretended(*args: Any, **kwargs: Any) -> Any:
        return given(*args, **kwargs)

    real = getattr(owner, name, None)
    if real is None:  # a build without CUDA lacks it
        pretended.__name__ = pretended.__qualname__ = name
        pretended.__module__ = owner.__name__
        return pretended
    return functools.update_wrapper(pretended, real, updated=() if isinstance(real, type) else ("__dict__",))


class Stream:
    """A stream of the pretended GPU; its work is always done. Memory that is allocated while it is the current one
    belongs to its pool."""

    stream_id = cuda_stream = device_index = priority = 0
    device = CUDA

    def __init__(self, *args: object, **kwargs: object) -> None:
        del args, kwargs
        self._before: list[Stream] = []

    def __enter__(self) -> Stream:
        self._before.append(_Current.stream)
        _Current.stream = self
        return self

    def __exit__(self, *error: object) -> None:
        del error
        _Current.stream = self._before.pop()

    def query(self) -> bool:
        """Return that all work is done."""
        return True

    def is_capturing(self) -> bool:
        """Return that no graph is being captured."""
        return False

    def synchronize(self, *args: object, **kwargs: object) -> None:
        """Do nothing, like all methods that wait or record."""

    wait_event = wait_stream = record = wait = synchronize

    def record_event(self, event: Any = None) -> Any:
        """Return an event whose work is done."""
        return event or Event()

    def elapsed_time(self, end_event: object) -> float:
        """Return one millisecond: programs divide by it."""
        del end_event
        return 1.0


class Event(Stream):
    """An event on the pretended GPU."""

    event_id = cuda_event = 0

    def ipc_handle(self) -> bytes:
        """Return the handle of an event that no other process has."""
        return b""

    @classmethod
    def from_ipc_handle(cls, device: object, handle: object) -> Event:
        """Return an event whose work is done."""
        del device, handle
        return cls()


DEFAULT_STREAM = Stream()
"""The stream that is the current one unless the program chooses another."""


class _Current:
    """The number of the current GPU, which a process of several chooses by its local rank; and its current stream."""

    index = 0
    stream = DEFAULT_STREAM


def set_stream(stream: Any) -> None:
    """Make a stream the current one; None changes nothing."""
    _Current.stream = _Current.stream if stream is None else stream


def current_stream(device: object = None) -> Stream:
    """The current stream."""
    del device
    return _Current.stream


def in_stream(stream: Any) -> contextlib.AbstractContextManager[Any]:
    """Make ``stream`` the current one for a while; None changes nothing."""
    return contextlib.nullcontext() if stream is None else stream


def set_device(device: Any) -> None:
    """Make a GPU the current one, by its number or as a device."""
    place: Any = device if isinstance(device, int) else torch.device(device).index
    _Current.index = place if isinstance(place, int) and place >= 0 else _Current.index


def current_device() -> int:
    """The number of the current GPU."""
    return _Current.index


def core_names() -> dict[str, Answer]:
    """Answers of PyTorch's core, which libraries ask beneath ``torch.cuda``; a build without CUDA lacks the names."""
    stream = (0, 0, 1)
    numbers = {"getCurrentRawStream": 0, "getDefaultStream": stream, "getCurrentStream": stream}
    flags = {"isInBadFork": False, "hasPrimaryContext": True, "canDeviceAccessPeer": False, "get_sync_debug_mode": 0}
    others = {"getAllocatorBackend": "native", "getCompiledVersion": 12080, "isCurrentStreamCapturing": False}
    silent = ("init", "synchronize", "emptyCache", "setStream", "set_sync_debug_mode", "resetPeakMemoryStats")
    constants: dict[str, Any] = {**numbers, **flags, **others, **dict.fromkeys(silent)}
    answers = {name: answer(value) for name, value in constants.items()}
    answers |= {"getDevice": current_device, "setDevice": set_device, "getDeviceCount": device_count}
    answers |= dict.fromkeys(("exchangeDevice", "maybeExchangeDevice"), _exchanged)
    return {f"_cuda_{name}": answer for name, answer in answers.items()}


def _exchanged(device: int) -> int:
    """Set the current device. Returns the former one."""
    before = _Current.index
    set_device(device)
    return before


def device_count() -> int:
    """The number of GPUs: one, or one for each rank of a pretended process group."""
    group = torch.distributed
    return group.get_world_size() if group.is_available() and group.is_initialized() else 1
