"""Margins of the memory that a step takes of a GPU: none, or as far as predictions were off in measurements."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from tensortide.cost.coverage import Coverage
from tensortide.graph.model import Graph
from tensortide.importers.memory_snapshot.graph import OUT_OF_MEMORY
from tensortide.memory.communicators import OTHERS, SWITCHED, Channels, Interval, communicators
from tensortide.timing.catalogue import device


class Measured(NamedTuple):
    """A step on a GPU, in MiB: what PyTorch counted there, what a capture for that GPU predicts, and the peak of the
    same step captured on the CPU."""

    step: str
    allocated: float
    predicted_allocated: float
    reserved: float
    predicted_reserved: float
    cpu_peak: float


MEASURED = (
    Measured("gpt2 batch=4 seq=512", 3836.3, 3838.4, 4122, 4152, 3767.6),
    Measured("the same in bfloat16", 1964.8, 1963.8, 2116, 2146, 1884.4),
    Measured("llama batch=2 dtype=bfloat16", 717.4, 716.1, 852, 788, 701.2),
    Measured("bert batch=8 seq=128", 2182.2, 2182.5, 2374, 2368, 2146.4),
    Measured("vit batch=8", 2059.7, 2042.7, 2272, 2220, 1918.0),
    Measured("resnet50 batch=32", 2934.7, 2941.9, 3620, 3356, 2858.7),
    Measured("unet batch=2", 3035.7, 3394.1, 4048, 4404, 3048.4),
)
"""Steps on an H200: the table of docs/cuda.md."""
WHERE = f"in {len(MEASURED)} steps measured on an H200"


def _least(shares: list[float]) -> Fraction:
    return min(Fraction(1), *map(Fraction, shares))


def _most(shares: list[float]) -> Fraction:
    return max(Fraction(1), *map(Fraction, shares))


class Margin(NamedTuple):
    """Bounds of what a step takes of a GPU: ``below`` times its peak to ``above`` times what the allocator reserves
    (None: nobody knows), and ``beside`` the pool. ``why`` says why they are not 1."""

    below: Fraction = Fraction(1)
    above: Fraction | None = Fraction(1)
    why: str = ""
    beside: Interval = Interval()

    def pool(self, peak_bytes: int, reserved_bytes: int) -> tuple[int, int | None]:
        """The least and the most (None: nobody knows) that the pool takes of a step of this peak, for which the
        allocator reserves so many bytes."""
        most = None if self.above is None else math.ceil(reserved_bytes * self.above)
        return math.floor(peak_bytes * self.below), most

    def least_bytes(self, peak_bytes: int) -> int:
        """The least that a step of this peak takes."""
        return self.pool(peak_bytes, 0)[0] + self.beside.low

    def most_bytes(self, reserved_bytes: int) -> int | None:
        """The most that a step takes for which the allocator reserves so many bytes; None if nobody knows."""
        most = self.pool(0, reserved_bytes)[1]
        return None if most is None or self.beside.high is None else most + self.beside.high

    def pool_bytes(self, usable_bytes: int) -> int:
        """Bytes that the pool may have of a device, if what lies beside it takes the most that it may."""
        return max(0, usable_bytes - (self.beside.high or 0))

    def sure_bytes(self, usable_bytes: int) -> int:
        """The most that the allocator may reserve for a step that is sure to fit."""
        return 0 if self.above is None else math.floor(self.pool_bytes(usable_bytes) / self.above)


EXACT = Margin()
CPU = Margin(
    _least([one.allocated / one.cpu_peak for one in MEASURED]),
    _most([one.reserved / one.cpu_peak for one in MEASURED]),
)
"""Margin of a step that was not captured for a GPU."""
DOUBTFUL = Margin(
    _least([one.allocated / one.predicted_allocated for one in MEASURED]),
    _most([one.reserved / one.predicted_reserved for one in MEASURED]),
)
"""Margin of a step that was captured for a GPU, and of which something is assumed or unknown."""


def margin(graph: Graph, coverage: Coverage, *, on_gpu: bool = True) -> Margin:
    """The margin of ``graph`` on a GPU, with what lies beside the pool, or on the CPU that it was captured for."""
    found = _of_pool(graph, coverage, on_gpu)
    return found._replace(beside=beside_pool(graph)) if on_gpu else found


def beside_pool(graph: Graph) -> Interval:
    """Bytes that the step of one of several ranks takes beside the pool and the context: communicators."""
    return communicators(graph, _channels(graph.meta.machine))


def _channels(machine: str) -> Channels:
    """Channels of NCCL on a machine; those of a switch where it is not named, the most."""
    return SWITCHED if not machine or device(machine).wiring in ("switched", "mesh") else OTHERS


def _of_pool(graph: Graph, coverage: Coverage, on_gpu: bool) -> Margin:
    if any(view.name == OUT_OF_MEMORY for view in graph):
        return Margin(above=None, why="The recording ends where memory ran out: what the rest takes is unknown.")
    if not on_gpu:
        return EXACT
    if not graph.index.main_device.startswith("cuda"):
        read = graph.meta.captured_on == "file"
        how, remedy = (
            ("Read from a file", "") if read else ("Captured on the CPU", " --machine h100 captures its step.")
        )
        range_ = f"{_factor(CPU.below)} to {_factor(CPU.above)} times as much"
        why = f"{how}, not for a GPU, whose kernels take other workspace: {range_} {WHERE}.{remedy}"
        return CPU._replace(why=why)
    doubts = [*_doubts(graph, coverage)]
    if not doubts:
        return EXACT
    off = f"{_factor(DOUBTFUL.below)} to {_factor(DOUBTFUL.above)} times what is predicted, as it was {WHERE}"
    return DOUBTFUL._replace(why=f"The step may need {off}: {'; '.join(doubts)}.")


def _doubts(graph: Graph, coverage: Coverage) -> Iterator[str]:
    """Things that are not known of a step that was captured for a GPU, in words."""
    if unknown := coverage.ops - coverage.covered:
        yield f"{unknown:,} of its ops take an unknown amount of memory meanwhile"
    if assumed := (*graph.meta.decisive, *graph.meta.untested):
        others = f" (and {len(assumed) - 1} more)" * (len(assumed) > 1)
        yield f"its tensors may have other sizes than with {assumed[0].partition(';')[0]}{others}"


def _factor(value: Fraction | None) -> str:
    return f"{float(value or 0):.2f}"
