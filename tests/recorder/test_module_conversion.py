"""Modules are moved and cast under a capture as they are without one."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tensortide import capture
from tensortide.graph import Role


def test_a_module_with_weak_references_to_its_parameters_is_moved_and_cast() -> None:
    def workload() -> Callable[[], Any]:
        layer = nn.Linear(4, 4)
        kept = [weakref.ref(each) for each in layer.parameters()]
        layer.to("cuda", torch.bfloat16)
        return lambda: (layer(torch.ones(2, 4, device="cuda", dtype=torch.bfloat16)).sum().backward(), kept)

    graph = capture(workload, device="cuda")
    kept = {index: each for index, each in enumerate(graph.storages) if each.role is Role.PARAMETER}
    assert {each.device for each in kept.values()} == {"cuda:0"}
    assert sum(int(each.nbytes) for each in kept.values()) == (16 + 4) * 2
