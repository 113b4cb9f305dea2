"""The verdict on one step: whether it fits, and what dominates its peak."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tensortide import GraphBuilder, capture, timeline
from tensortide.studies.fit import verdict
from tensortide.studies.fit.verdict import COMMON, fits
from tensortide.timing.catalogue import device


def test_three_copies_of_the_logits_dominate_gpt2_and_are_named_with_their_line() -> None:
    graph = capture("gpt2", hyperparameters={"layers": 1}, machine="H100-SXM-80GB")
    found = verdict(graph, timed=False)
    assert found.dominant is not None
    assert found.dominant.kind == "loss"
    assert found.dominant.nbytes == 3 * 8 * 1024 * 50257 * 4
    assert found.dominant.sentence.startswith(
        "three copies of the logits, f32[8192,50257] of 1.53 GiB each, at the loss"
    )
    assert found.dominant.source.startswith("training.py:")
    assert "F.cross_entropy(" in found.dominant.code


def wide(optimizer: Callable[..., Any] = torch.optim.Adam) -> Callable[[], Any]:
    net, x = nn.Linear(2000, 2000), torch.randn(1, 2000)
    update = optimizer(net.parameters())

    def step() -> None:
        net(x).sum().backward()
        update.step()
        update.zero_grad()

    return step


def test_the_state_of_the_optimizer_is_named_with_the_line_that_updates_it() -> None:
    found = verdict(capture(wide), timed=False).dominant
    assert found is not None
    assert (found.kind, found.nbytes) == ("state", 2 * (2000 * 2000 + 2000) * 4 + 2 * 4)
    assert found.sentence.startswith("optimizer state takes 30.5")
    assert found.code == "update.step()"


def deep() -> Callable[[], Any]:
    blocks = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Sigmoid()) for _ in range(6)))
    x = torch.randn(4096, 8)

    def step() -> None:
        blocks(x).sum().backward()

    return step


def test_what_repeated_modules_keep_is_one_group() -> None:
    graph = capture(deep)
    found = verdict(graph, timed=False).dominant
    assert found is not None
    assert found.kind == "activations"
    assert found.share == found.nbytes / timeline(graph).peak_bytes > 0.5


def test_devices_of_every_common_size_are_judged_by_what_can_be_used() -> None:
    graph = capture(wide)
    peak = timeline(graph).peak_bytes
    found = verdict(graph)
    assert list(COMMON) == [16, 24, 40, 48, 80, 141, 192]
    for (size, name), room in zip(COMMON.items(), found.rooms, strict=True):
        assert room.device == name
        assert 0.8 * size * 2**30 < room.usable_bytes < size * 2**30
        assert room.fits == "fits"
        assert room.step_ns is not None
        assert room.step_ns > 0
    own = verdict(graph, asked=device("T4"), memory_bytes=peak - 1, timed=False).asked
    assert own is not None
    assert own.fits == "too large"


@pytest.mark.parametrize(("usable", "expected"), [(120, "fits"), (119, "tight"), (100, "tight"), (99, "too large")])
def test_a_step_is_tight_where_its_tensors_fit_and_the_allocator_takes_more(usable: int, expected: str) -> None:
    assert fits(100, 120, usable) == expected


def test_ops_of_other_vocabularies_are_named_in_full_and_a_line_without_code_has_no_colon() -> None:
    b = GraphBuilder("other")
    with b.module("body"), b.source("model.py", 12):
        b.output(b.op("jax.div", b.input("x", (1000,)), out=(2000,)))
    found = verdict(b.build()).dominant
    assert found is not None
    assert found.sentence.endswith("in body, model.py:12")
    assert "the result of jax.div" in found.sentence
