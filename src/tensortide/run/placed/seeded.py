"""Workloads that every process builds alike, from one seed, and the loss among what their steps return."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from tensortide.recorder.target import Scalar, workload
from tensortide.recorder.torch_compat import pytree
from tensortide.run.program import Program

SEED = 0


@dataclass(frozen=True)
class SeededWorkload:
    """A target with its settings."""

    target: str
    settings: Mapping[str, Scalar]

    def build(self) -> Callable[[], Any]:
        """A step of the target, built anew, after its first one, which makes the state of the optimizer."""
        torch.manual_seed(SEED)
        program = Program(self.target, workload(self.target).function, self.settings)
        step = program.build()
        program.timed(step, torch.device("cpu"), 1)
        return step


def loss_in(value: Any) -> torch.Tensor | None:
    """The first tensor of one element among what a step returns."""
    leaves = pytree.tree_leaves(value)
    return next((leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.numel() == 1), None)
