"""Constants are known while a step is captured, as long as nothing is written over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tensortide import capture
from tensortide.recorder.known import KNOWN_NUMEL
from tests.recorder.steps import Step


def test_a_check_passes_and_values_on_a_gpu_are_known() -> None:
    def workload() -> Step:
        lengths = torch.tensor([3, 5, 2]).to("cuda" if torch.cuda.is_available() else "cpu")
        x = torch.randint(0, 9, (8,), device=lengths.device)
        count = torch.zeros(3, device=lengths.device)

        def step() -> torch.Tensor:
            assert (x >= 5).all(), "too low"
            if (x == 4).any():
                raise ValueError("four")
            count.add_(lengths).sub_(count)
            return x[: lengths.max().item()] * (2 if count.sum() == 0 else 3)

        return step

    for device in ("cpu", "cuda"):
        graph = capture(workload, device=device)
        assert [op.outputs[0].shape for op in graph if op.name == "aten.mul.Tensor"] == [(5,)]
        assert not any("lengths" in text or "count" in text for text in graph.meta.assumptions)


def test_constants_are_known_while_a_model_is_built() -> None:
    def workload() -> Step:
        rates = [x.item() for x in torch.linspace(0, 0.1, 12)]
        assert rates == torch.linspace(0, 0.1, 12).tolist()
        assert rates[-1] == pytest.approx(0.1)
        steps = torch.zeros(3, dtype=torch.long)
        steps[1] += 2
        sizes = (torch.arange(3) * 2 + steps).tolist()
        layers = nn.Sequential(*[nn.Linear(4, 4 + size) for size in sizes][:1], *[nn.Dropout(rate) for rate in rates])
        x = torch.randn(2, 4)
        assert sizes == [0, 4, 4]
        return lambda: layers(x).sum().backward()

    assert capture(workload).meta.assumptions == ()


def test_what_is_written_over_is_not_known_any_more() -> None:
    x, history = torch.randn(8, 4), list[Any]()

    def workload() -> Step:
        kept = torch.zeros(4)
        lists = [torch.zeros(4), torch.zeros(4)]
        norm = nn.BatchNorm1d(4)

        def step() -> None:
            norm(x)
            kept.copy_(x[0])
            torch._foreach_add_(lists, [x[0], x[1]])
            history.append([norm.running_mean[0].item(), kept[0].item(), lists[1][0].item()])  # type: ignore[index]

        return step

    said = capture(workload).meta.assumptions
    assert "0.99" in said[0]
    assert "0.0" not in said[0]


def test_large_constants_take_no_memory() -> None:
    def workload() -> Step:
        large = torch.zeros(1).repeat(1 << 40) + torch.ones(KNOWN_NUMEL, KNOWN_NUMEL)[0, 0]
        return lambda: large * 2

    assert capture(workload).storages[0].nbytes == 4 << 40


def test_a_model_with_known_parameters_can_be_cast() -> None:
    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(8))

    def workload() -> Callable[[], Any]:
        model = Scaled().to(torch.bfloat16)
        return lambda: (torch.randn(2, 8, dtype=torch.bfloat16) * model.weight).sum().backward()

    graph = capture(workload, real=False)
    assert next(graph.tensors[n.tensor].dtype for n in graph.named if n.name.endswith("weight")) == "bfloat16"
