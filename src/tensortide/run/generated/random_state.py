"""The states of PyTorch's random generators that a recomputed op draws its numbers from."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tensortide.graph.effects import draws_random
from tensortide.graph.model import Graph


def drawn_on(device: str) -> str:
    """The device whose generator an op on ``device`` draws from."""
    return device if device.startswith("cuda") else "cpu"


def _generator(device: str) -> torch.Generator:
    if device == "cpu":
        return torch.default_generator
    return torch.cuda.default_generators[int(device.partition(":")[2] or torch.cuda.current_device())]


@functools.cache
def state_of(device: str) -> Callable[[], torch.Tensor]:
    """The function that reads the state of the generator of ``device``."""
    return lambda: _generator(device).get_state()


@functools.cache
def with_state(device: str) -> Callable[[torch.Tensor], Any]:
    """The context in which the generator of ``device`` goes on from a state, and after which it is as before."""

    @contextlib.contextmanager
    def within(state: torch.Tensor) -> Iterator[None]:
        generator = _generator(device)
        before = generator.get_state()
        generator.set_state(state)
        try:
            yield
        finally:
            generator.set_state(before)

    return within


def state_bytes(device: str) -> int:
    """Bytes on ``device`` of a state of its generator, which is kept in the host's memory."""
    return int(torch.default_generator.get_state().nbytes) if device == "cpu" else 0


def most_state_bytes(graph: Graph) -> int:
    """Bytes of the states of all random ops of ``graph``."""
    drawing = sum(draws_random(graph.calls[op.call]) for op in graph.ops)
    return drawing * state_bytes(graph.index.main_device)
