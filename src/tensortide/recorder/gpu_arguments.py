"""Arguments of PyTorch's functions that mean the pretended GPU: its number, its generators, its streams.

PyTorch reads a number in place of a device as an index of the accelerator of its build, which a CPU build lacks;
generators and streams are objects that only a build with CUDA can make.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.nn.parallel import comm
from torch.overrides import TorchFunctionMode

from tensortide.recorder.surroundings import replaced

_CPU_GENERATOR = torch.Generator


class _Numbered(TorchFunctionMode):
    """Reads ``device=0``, ``.to(0)``, ``.cuda(0)`` and ``torch.device(0)`` as the GPU of that number."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call ``func`` with a device where its argument is a number."""
        kwargs = kwargs or {}
        if type(kwargs.get("device")) is int:
            kwargs = {**kwargs, "device": torch.device("cuda", kwargs["device"])}
        place = _PLACES.get(getattr(func, "__name__", ""))
        if place is not None and len(args) > place and type(args[place]) is int:
            args = (*args[:place], torch.device("cuda", args[place]), *args[place + 1 :])
        return func(*args, **kwargs)


_PLACES = {"to": 1, "cuda": 1, "_parse_to": 0, "device": 0, "__new__": 0}
"""Position of the device among the arguments of functions that take it without its name."""


class _Kind(type(_CPU_GENERATOR)):  # type: ignore[misc]
    """Counts generators of the CPU among generators, as PyTorch does."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _CPU_GENERATOR)


class _Generator(_CPU_GENERATOR, metaclass=_Kind):
    """A generator of the pretended GPU, if it is made for that; the numbers that it would draw are of no interest."""

    def __new__(cls, device: Any = "cpu") -> Any:
        """Make a generator of ``device``."""
        device = torch.device("cuda", device) if type(device) is int else torch.device(device)
        if device.type != "cuda":
            return _CPU_GENERATOR(device)
        made = super().__new__(cls)
        made.place = torch.device("cuda", device.index or 0)
        return made

    place: torch.device

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The GPU."""
        return self.place


def _scattered(tensor: torch.Tensor, devices: Sequence[Any] | None = None, *_: Any, **__: Any) -> Any:
    """The parts of a batch for each GPU of ``DataParallel``."""
    places = [torch.device("cuda", place) if type(place) is int else torch.device(place) for place in devices or (0,)]
    parts = tensor.chunk(len(places))
    return tuple(part.to(place) for part, place in zip(parts, places, strict=False))


@contextlib.contextmanager
def understood() -> Iterator[None]:
    """Let PyTorch's functions take what means the pretended GPU."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(torch, "Generator", _Generator))
        stack.enter_context(replaced(torch.Tensor, "record_stream", lambda tensor, stream: None))
        stack.enter_context(replaced(comm, "scatter", _scattered))
        stack.enter_context(_Numbered())
        yield
