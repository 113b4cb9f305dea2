"""A list of tensors becomes one tensor, as of real ones: its values come from theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tensortide.graph import Graph
from tensortide.recorder import capture
from tensortide.recorder.recording import record
from tests.recorder.steps import Step

Make = Callable[..., torch.Tensor]


def lists(place: str) -> list[torch.Tensor]:
    """Tensors of lists with tensors on ``place``, one for each way to make them."""
    half, one, row = torch.ones((), dtype=torch.float16, device=place), torch.ones((), device=place), torch.ones(1)
    makes: list[tuple[Make, Any, dict[str, Any]]] = [
        (torch.tensor, [half, half], {}),
        (torch.tensor, [half, 2], {}),
        (torch.tensor, [half, 2.5], {}),
        (torch.as_tensor, ([one, 1], (2, one)), {}),
        (torch.tensor, [row, row], {"dtype": torch.float64}),
        (torch.tensor, [one, one], {"device": place, "requires_grad": True}),
        (one.new_tensor, [one > 0, one < 0], {}),
        (torch.tensor, [], {}),
        (torch.tensor, [1, 2], {}),
    ]
    return [make(data, **options) for make, data, options in makes]


def described(place: str) -> list[tuple[Any, ...]]:
    """The form and the values of such tensors."""
    return [(tuple(each.shape), each.dtype, each.requires_grad, each.tolist()) for each in lists(place)]


@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_they_are_as_of_real_tensors(place: str) -> None:
    expected = described("cpu")

    def workload() -> Step:
        weight = torch.ones((), device=place, requires_grad=True)

        def step() -> None:
            weight.sum().backward()
            assert described(place) == expected
            on_gpu = [number for number, each in enumerate(lists(place)) if each.device.type == "cuda"]
            assert on_gpu == ([] if place == "cpu" else [5, 6])

        return step

    assert not any("real tensors" in said for said in capture(workload, device=place).meta.assumptions)


def clipped(place: str) -> Graph:
    """A step that scales its gradients by the norm of their norms."""

    def workload() -> Step:
        model = torch.nn.Linear(4, 4).to(place)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step() -> None:
            optimizer.zero_grad()
            model(torch.ones(2, 4, device=place)).sum().backward()
            grads = [each.grad for each in model.parameters() if each.grad is not None]
            norm = torch.tensor([each.norm() for each in grads]).norm()
            assert norm.device == torch.device("cpu")
            for each in grads:
                each.mul_(norm)
            optimizer.step()

        return step

    return capture(workload, device=place)


@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_what_is_not_known_is_written_to_them(place: str) -> None:
    graph = clipped(place)
    writes = [op for op in graph if op.name == "aten.copy_.default"]
    assert [[value.nbytes for value in op.outputs] for op in writes] == [[4], [4]]
    assert not graph.meta.assumptions


def test_lists_of_real_tensors_are_as_ever_during_a_capture_and_after_it() -> None:
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with record() as recording:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            assert torch.tensor([each.detach().sum() for each in model.parameters()]).shape == (2,)
            optimizer.step()
    assert len(recording.graph) > 0
    assert torch.tensor([torch.ones(()), torch.nn.Parameter(torch.ones(()), requires_grad=False)]).tolist() == [1, 1]
