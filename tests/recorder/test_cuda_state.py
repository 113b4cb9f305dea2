"""State of the pretended GPU that programs set: nothing of it decides the ops of a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tensortide import capture


def test_generators_of_the_gpu_are_seeded_saved_and_restored() -> None:
    def workload() -> Callable[[], Any]:
        torch.cuda.manual_seed(1)
        torch.cuda.manual_seed_all(2)
        for module in (torch.cuda, torch.cuda.random):
            module.set_rng_state(module.get_rng_state(), 0)
            module.set_rng_state_all(module.get_rng_state_all())
        weight = torch.ones(4, device="cuda", requires_grad=True)
        return lambda: (weight * 2).sum().backward()

    assert capture(workload, device="cuda").index.main_device == "cuda:0"
