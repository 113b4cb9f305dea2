"""Changes that a capture makes to a step, as its author would write them, without touching the author's code.

``capture(workload, changes=[Checkpoint(("blocks.0", "blocks.1"))])`` records the step that has them. Each is a
transformation of the running objects: a module's forward is wrapped, an optimizer's update replaced, a function of the
framework stands in for another while the step runs. The user's objects are as before afterwards.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from tensortide.errors import CaptureError

__all__ = [
    "Accumulated",
    "Autocast",
    "Change",
    "Checkpointed",
    "ChunkedLoss",
    "EightBit",
    "Fused",
    "NotApplicable",
    "SavedOnHost",
    "Sharded",
    "Written",
]


class NotApplicable(CaptureError):
    """A change that a step cannot have; the message says why."""


class Autocast(msgspec.Struct, frozen=True):
    """Forward pass and loss under ``torch.autocast``; the backward pass is outside of it."""

    dtype: str = "bfloat16"


class Checkpointed(msgspec.Struct, frozen=True):
    """The forward of each of ``modules`` (paths) in ``torch.utils.checkpoint``, the variant that is not reentrant."""

    modules: tuple[str, ...]


class SavedOnHost(msgspec.Struct, frozen=True):
    """Tensors that the forward of each of ``modules`` saves for the backward pass, on the host: ``save_on_cpu``."""

    modules: tuple[str, ...]


class ChunkedLoss(msgspec.Struct, frozen=True):
    """Cross entropy of the product with the parameter ``weight`` (its name), by ``chunks`` of rows, each of them
    recomputed in the backward pass: no logits of all rows."""

    weight: str
    chunks: int = 8


class Fused(msgspec.Struct, frozen=True):
    """Optimizers with ``fused=True``: one kernel, without temporaries."""


class EightBit(msgspec.Struct, frozen=True):
    """Optimizers with states of one byte and a scale for each block of ``block`` elements, in one kernel per parameter;
    parameters below ``least`` elements keep theirs in 32 bits. As ``bitsandbytes.optim`` has them."""

    block: int = 256
    least: int = 4096


class Sharded(msgspec.Struct, frozen=True):
    """Optimizers that update and hold the state of the largest share of the parameters when ``devices`` divide them,
    as ``ZeroRedundancyOptimizer`` does."""

    devices: int


class Accumulated(msgspec.Struct, frozen=True):
    """The step ``turns`` times, with gradients that add up and one update at the end."""

    turns: int


class Written(msgspec.Struct, frozen=True):
    """The ``code`` of a file that ``plan --torch`` writes, applied to the models named ``prefixes``."""

    code: str
    prefixes: tuple[str, ...] = ("",)


Change: TypeAlias = (
    Autocast | Checkpointed | SavedOnHost | ChunkedLoss | Fused | EightBit | Sharded | Accumulated | Written
)
