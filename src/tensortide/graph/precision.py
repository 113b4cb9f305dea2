"""Ops of fp32 that compute in TF32: PyTorch's default, and what a program has set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from tensortide.graph.model import Meta

InTf32: TypeAlias = Literal["products", "convolutions"]
"""Ops of fp32 that may compute in TF32, on GPUs that have units for it."""
DEFAULT_TF32: tuple[InTf32, ...] = ("convolutions",)
"""PyTorch's default."""


def in_tf32(meta: Meta) -> tuple[InTf32, ...]:
    """The ops of fp32 that compute in TF32 in the step of ``meta``."""
    return DEFAULT_TF32 if meta.tf32 is msgspec.UNSET else meta.tf32
