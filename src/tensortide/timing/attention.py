"""Speed of attention kernels: the share of the 16-bit peak that each reaches on a generation of devices.

One table serves closed forms and captured steps. Its shares are of the FLOPs that a kernel computes: half of the scores
under a causal mask, and five products in the backward pass (the scores again). ``rows``: fitted to measured calls of
the kernel; ``steps``: to whole training steps, with the copies and launches around the kernel; ``other``: taken over
from other generations.
"""

from __future__ import annotations

import csv
import functools
import importlib.resources
from typing import Literal, NamedTuple, TypeAlias, get_args

import msgspec
from msgspec.structs import replace

from tensortide.graph.model import Graph
from tensortide.timing.catalogue import Device

Kernel: TypeAlias = Literal["flash2", "flash3", "cudnn", "efficient", "flex"]
KERNELS: tuple[Kernel, ...] = get_args(Kernel)
USUAL: Kernel = "flash2"
ANY = "any"
NARROW = 64
"""Elements of a head up to which a kernel reaches less."""


class Speed(msgspec.Struct, frozen=True):
    """A row of the table: shares of the peak on long sequences with heads of 128 elements, forward and backward;
    ``half_tokens`` of a sequence at which they are half; ``narrow``: what is left of them with heads of 64."""

    arch: str
    kernel: Kernel
    forward: float
    backward: float
    half_tokens: float
    narrow: float
    forward_from: Literal["rows", "steps", "other"]
    backward_from: Literal["rows", "steps", "other"]

    def shares(self, tokens: float, head: float) -> Shares:
        """Shares of the peak with sequences of ``tokens`` and heads of ``head`` elements."""
        left = tokens / (tokens + self.half_tokens) * (self.narrow if head <= NARROW else 1.0)
        return Shares(self.forward * left, self.backward * left)


class Shares(NamedTuple):
    """Shares of the peak, forward and backward."""

    forward: float
    backward: float


@functools.cache
def speeds() -> tuple[Speed, ...]:
    """The rows of the table."""
    text = importlib.resources.files("tensortide.timing").joinpath("attention.csv").read_text()
    return tuple(msgspec.convert(list(csv.DictReader(text.splitlines())), list[Speed], strict=False))


def speed_of(device: Device, kernel: str) -> Speed:
    """The row of ``kernel`` on ``device``; where there is none, that of the usual kernel of its generation, or of
    any."""
    known = {(row.arch, row.kernel): row for row in speeds()}
    places = ((device.arch, kernel), (device.arch, USUAL), (ANY, USUAL))
    return next(known[place] for place in places if place in known)


_OF_OPS: dict[str, Kernel] = {"_flash_attention": "flash2", "_cudnn_attention": "cudnn", "_efficient": "efficient"}
"""Kernels of PyTorch's ops of fused attention on GPUs, by a part of their names."""


def kernel_of(op: str) -> Kernel | Literal[""]:
    """The kernel that ``op`` runs on a GPU; empty where its name does not tell."""
    return next((kernel for mark, kernel in _OF_OPS.items() if mark in op and "for_cpu" not in op), "")


def with_kernel(graph: Graph, kernel: Kernel | None) -> Graph:
    """``graph`` with times of fused attention at the speed of ``kernel``; itself for None."""
    return graph if kernel is None else replace(graph, meta=replace(graph.meta, attention=kernel))


def share_in_steps(device: Device, kernel: str, head: float, keys: float, *, backward: bool) -> float | None:
    """Share of the peak that a pass of ``kernel`` reaches on ``device`` in whole steps; None where none were measured:
    a pass of which calls were measured is predicted by those."""
    row = next((row for row in speeds() if (row.arch, row.kernel) == (device.arch, kernel)), None)
    if row is None or (row.backward_from if backward else row.forward_from) != "steps":
        return None
    shares = row.shares(keys, head)
    return shares.backward if backward else shares.forward


def is_known(device: Device, kernel: str) -> bool:
    """Tell whether ``kernel`` was measured on the generation of ``device``, its backward pass too."""
    row = speed_of(device, kernel)
    return (row.arch, row.kernel) == (device.arch, kernel) and row.backward_from != "other"


def basis(device: Device, kernel: str) -> str:
    """Say which kernel is assumed on ``device``, and what its speed rests on."""
    row = speed_of(device, kernel)
    if (row.arch, row.kernel) != (device.arch, kernel):
        where = "other devices" if row.arch == ANY else "this generation"
        return f"{kernel}, whose speed on {device.name} is not known: that of {row.kernel} on {where} stands in"
    sources = {"rows": "measured calls", "steps": "whole steps", "other": "other generations"}
    return (
        f"{kernel}, at {row.forward:.0%} of the 16-bit peak forward (from {sources[row.forward_from]}) and "
        f"{row.backward:.0%} backward (from {sources[row.backward_from]}) on long sequences"
    )
