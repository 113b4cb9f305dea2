"""Arguments of PyTorch's functions that mean the pretended GPU: its number, its generators, its streams.

PyTorch reads a number in place of a device as an index of the accelerator of its build, which a CPU build lacks;
generators and streams are objects that only a build with CUDA can make.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.nn.parallel import comm
from torch.overrides import TorchFunctionMode

from tensortide.recorder.pretended_devices import answer, current_device, in_place_of
from tensortide.recorder.surroundings import replaced
from tensortide.recorder.torch_compat import FakeTensor

_CPU_GENERATOR = torch.Generator


class Numbered(TorchFunctionMode):
    """Reads ``device=0``, ``.to(0)``, ``.cuda(0)`` and ``torch.device(0)`` as the GPU of that number, and ``cuda`` as
    the current one."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call ``func`` with a device where its argument is a number."""
        kwargs = kwargs or {}
        if "device" in kwargs:
            kwargs = {**kwargs, "device": _numbered(kwargs["device"])}
        name = getattr(func, "__name__", "")
        place = _PLACES.get(name)
        if name == "cuda" and args and kwargs.get("device") is None and (len(args) < 2 or args[1] is None):
            args, kwargs = (
                (args[0], _numbered("cuda"), *args[2:]),
                {key: kwargs[key] for key in kwargs if key != "device"},
            )
        elif place is not None and len(args) > place and (name not in _MADE or type(args[place]) is int):
            args = (*args[:place], _numbered(args[place]), *args[place + 1 :])
        return func(*args, **kwargs)


def _numbered(place: Any) -> Any:
    """The device that ``place`` is: a number, or ``cuda`` for the current one, which PyTorch takes to be the first."""
    if type(place) is int:
        return torch.device("cuda", place)
    unnumbered = place == "cuda" if type(place) is str else type(place) is torch.device and place == _CUDA
    return torch.device("cuda", current_device()) if unnumbered and current_device() else place


_CUDA = torch.device("cuda")


_PLACES = {"to": 1, "cuda": 1, "_parse_to": 0, "device": 0, "__new__": 0}
"""Position of the device among the arguments of functions that take it without its name."""
_MADE = ("device", "__new__")
"""Functions among these that make a device."""


class _CpuGenerator(_CPU_GENERATOR):
    """A generator of the CPU that keeps its state if it is given one without values, as a collective returns it."""

    def set_state(self, new_state: torch.Tensor) -> _CpuGenerator:
        """As the base class."""
        if not isinstance(new_state, FakeTensor):
            super().set_state(new_state)
        return self


def _with_values(put: Callable[[torch.Tensor], None]) -> Callable[[torch.Tensor], None]:
    """``put``, which sets a state of random generators, for states that have values."""

    @functools.wraps(put)
    def put_values(new_state: torch.Tensor) -> None:
        if not isinstance(new_state, FakeTensor):
            put(new_state)

    return put_values


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
            return _CpuGenerator(device) if device.type == "cpu" else _CPU_GENERATOR(device)
        made = super().__new__(cls)
        made.place = torch.device("cuda", device.index or 0)
        return made

    place: torch.device

    def get_state(self) -> torch.Tensor:
        """A state: that of every generator of the GPU."""
        return torch.zeros(16, dtype=torch.uint8)

    def set_state(self, new_state: torch.Tensor) -> _Generator:
        """Take any state: it has no values."""
        del new_state
        return self

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The GPU."""
        return self.place


class _Generators:
    """The default generators of the GPUs: one for all of them."""

    def __init__(self) -> None:
        self._one = _Generator("cuda")

    def __getitem__(self, index: int) -> Any:
        """Return the generator of any GPU."""
        del index
        return self._one


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
        stack.enter_context(replaced(torch.cuda, "default_generators", _Generators()))
        for owner in (torch, torch.random):
            stack.enter_context(replaced(owner, "set_rng_state", _with_values(torch.set_rng_state)))
        for holder, name, given in ((torch.Tensor, "record_stream", answer(None)), (comm, "scatter", _scattered)):
            stack.enter_context(replaced(holder, name, in_place_of(holder, name, given)))
        stack.enter_context(Numbered())
        yield
