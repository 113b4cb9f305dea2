"""The work of a capture grows with the number of ops, and no faster."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from tensortide import capture

RESNET = {"variant": "cifar", "image": 8, "width": 2}


def calls_of(name: str, settings: dict[str, str | int]) -> tuple[int, int]:
    """Ops of a workload, and calls of Python functions that its capture makes: the same on any machine."""
    counted = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal counted
        counted += event == "call"

    sys.setprofile(count)
    try:
        graph = capture(name, hyperparameters=settings)
    finally:
        sys.setprofile(None)
    return len(graph.ops), counted


@pytest.mark.parametrize(
    ("name", "grows", "sizes", "others"),
    [
        ("mlp", "layers", (2, 12, 22), {"hidden": 4}),
        pytest.param("resnet", "depth", (8, 38, 68), RESNET, marks=pytest.mark.slow),
    ],
)
def test_another_layer_takes_as_many_calls_in_a_deeper_network(
    name: str, grows: str, sizes: tuple[int, ...], others: dict[str, str | int]
) -> None:
    capture(name, hyperparameters={**others, grows: sizes[0]})  # imports, and caches of kernels
    (few, short), (many, long), (most, longest) = (calls_of(name, {**others, grows: size}) for size in sizes)
    assert few < many < most
    assert (longest - long) / (most - many) < 1.1 * (long - short) / (many - few)
