"""Kernel traces for tests: recorded ones with their profiles, and random ones."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from tensortide.importers.g10.read import read_trace
from tensortide.importers.g10.results import profile_of
from tensortide.replays.g10.machine import Trace, trace_of


def recorded_trace(reference: Path, name: str) -> Trace:
    """A recorded trace with its profile; a skip where only part of it is committed."""
    folder = reference / "g10" / name
    profile = profile_of(folder)
    if not profile.all_absent_ns:
        pytest.skip("the times of kernels whose operands are absent are not committed")
    found = read_trace(folder)
    assert found.times is not None
    ns = found.times.durations(found.graph, "trace").ns
    return trace_of(found.graph, ns, outputs_absent_ns=profile.outputs_absent_ns, all_absent_ns=profile.all_absent_ns)


def random_trace(seed: int, layers: int = 12) -> Trace:
    """A chain of layers with weights, forward and backward; tensors of 64 to 2,000 pages, kernels of 0.1 to 3 ms."""
    chance = random.Random(seed)
    pages: list[int] = []

    def tensor(least: int = 64, most: int = 2_000) -> int:
        pages.append(chance.randint(least, most))
        return len(pages) - 1

    weights = [tensor(64, 400) for _ in range(layers)]
    outputs = [tensor()]
    kernels: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((), (outputs[0],))]
    for weight in weights:
        outputs.append(tensor())
        kernels.append(((outputs[-2], weight), (outputs[-1],)))
    loss, gradient = len(kernels), tensor()
    kernels.append(((outputs[-1],), (gradient,)))
    for weight, made in zip(reversed(weights), reversed(outputs[:-1]), strict=True):
        after = tensor()
        kernels.append(((made, weight, gradient), (after,)))
        kernels.append(((weight, after), (weight,)))
        gradient = after
    ns = np.array([chance.randint(100_000, 3_000_000) for _ in kernels])
    lasts = np.array([number < layers for number in range(len(pages))])
    reads, writes = tuple(row[0] for row in kernels), tuple(row[1] for row in kernels)
    return Trace(np.array(pages), lasts, reads, writes, ns, ns, ns, loss)
