"""Workloads that every process builds alike, from one seed, and the loss among what their steps return."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import torch

from tensortide.recorder.target import Scalar, workload
from tensortide.recorder.torch_compat import pytree
from tensortide.run.program import Program
from tensortide.shown import Show

SEED = 0


@dataclass(frozen=True)
class SeededWorkload:
    """A target with its settings, and the number of steps to run after that which makes the state of the optimizer."""

    target: str
    settings: Mapping[str, Scalar]
    steps: Annotated[int, Show("Steps")] = 3

    def build(self) -> Callable[[], Any]:
        """A step of the target, built anew, after its first one, which makes the state of the optimizer."""
        torch.manual_seed(SEED)
        program = Program(self.target, workload(self.target).function, self.settings)
        with fused_adam():
            step = program.build()
        program.timed(step, torch.device("cpu"), 1)
        return step


@contextlib.contextmanager
def fused_adam() -> Iterator[None]:
    """Make every Adam and AdamW that is constructed inside fused, unless the program chooses an implementation.

    Plain ones read their count of steps to compute with it in Python, which the Graph of a step does not repeat; fused
    ones keep it in a tensor.
    """
    kinds = (torch.optim.Adam, torch.optim.AdamW)
    originals = [vars(kind)["__init__"] for kind in kinds]
    for kind, original in zip(kinds, originals, strict=True):
        setattr(kind, "__init__", _fused(original))  # noqa: B010  # assigned, it would be one of an instance to mypy
    try:
        yield
    finally:
        for kind, original in zip(kinds, originals, strict=True):
            setattr(kind, "__init__", original)  # noqa: B010


def _fused(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def init(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        for group in (self.defaults, *self.param_groups):
            if not any(group[way] for way in ("foreach", "capturable", "differentiable")) and group["fused"] is None:
                group["fused"] = True

    return init


def loss_in(value: Any) -> torch.Tensor | None:
    """The first tensor of one element among what a step returns."""
    leaves = pytree.tree_leaves(value)
    return next((leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.numel() == 1), None)
