"""The memory of a whole card: PyTorch's pool by what takes it, and what lies beside the pool, each with its source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import msgspec

from tensortide.graph.model import Graph, Role
from tensortide.memory.communicators import Interval, added, used_groups
from tensortide.shown import Show
from tensortide.studies.fit.margins import Margin, beside_pool
from tensortide.timelines import StorageTimeline
from tensortide.timing.catalogue import CONTEXT_BYTES

CONTEXT = Interval(256 * 2**20, 426 * 2**20, CONTEXT_BYTES)
"""The CUDA context with kernels loaded when they are first used: 256 MiB on an RTX 3090 (CUDA 12.8), 426 MiB on an RTX
6000 Ada (CUDA 13.0), 300 to 400 MB on others."""


class CardRow(msgspec.Struct, frozen=True):
    """Memory of the card that one thing takes: at least, probably, and at most (None: nobody knows)."""

    what: Annotated[str, Show("Memory of the card", fold=True)]
    low_bytes: Annotated[int, Show("at least")]
    likely_bytes: Annotated[int, Show("likely")]
    high_bytes: Annotated[int | None, Show("at most")]
    source: Annotated[str, Show("Source", fold=True, dim=True)]


class _Part(NamedTuple):
    what: str
    bytes: Interval
    source: str


def whole_card(graph: Graph, line: StorageTimeline, reserved_bytes: int, margin: Margin) -> tuple[CardRow, ...]:
    """The memory of the card that the step on a GPU takes, by what takes it, and its total; empty for other steps.

    ``line`` is its Timeline, ``reserved_bytes`` the peak of the allocator, ``margin`` how far both may be off. The
    rows of the pool add up to what ``margin`` makes of both.
    """
    if not line.device.startswith("cuda") or line.peak_op < 0:
        return ()
    library = sum(one.nbytes for one in line.alive() if one.role is Role.LIBRARY)
    workspace = int(line.workspace[line.peak_op])
    tensors = line.peak_bytes - library - workspace
    least, most = margin.pool(line.peak_bytes, reserved_bytes)
    gaps = reserved_bytes - line.peak_bytes
    parts = [
        _Part("tensors", Interval(tensors - line.peak_bytes + least, tensors, tensors), "captured, at the peak"),
        _Part("workspaces of kernels", _exactly(workspace), "rules by kernel, at the peak"),
        _Part("workspaces of BLAS", _exactly(library), "PyTorch's sizes, one per thread"),
        _Part(
            "free in the pool",
            Interval(0, gaps, None if most is None else most - line.peak_bytes),
            "the allocator replayed, a pool per stream",
        ),
        _Part("CUDA context", CONTEXT, "published, kernels loaded lazily"),
    ]
    if groups := used_groups(graph):
        several = f"{len(groups)} process groups" if len(groups) > 1 else "1 process group"
        parts.append(_Part("communicators of NCCL", beside_pool(graph), f"{several}: buffers per channel and rank"))
    parts.append(_Part("whole card", added(part.bytes for part in parts), ""))
    return tuple(CardRow(part.what, *part.bytes, part.source) for part in _shown(parts))


def _exactly(nbytes: int) -> Interval:
    return Interval(nbytes, nbytes, nbytes)


def _shown(parts: Sequence[_Part]) -> list[_Part]:
    """The parts that take anything."""
    return [part for part in parts if part.bytes != Interval()]
