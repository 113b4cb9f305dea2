"""What ordinary runs do, written down as they do it: sums of gradients, kernels, phases and roles at the edges."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tensortide import capture
from tensortide.graph import Graph, OpView, Phase, Role


def named(graph: Graph, name: str) -> list[OpView]:
    return [op for op in graph if op.name.split(".")[1] == name]


def test_gradients_of_one_parameter_are_summed_in_place() -> None:
    """As the autograd engine does where nothing watches it; the sums a user writes stay as written."""

    def workload() -> Any:
        table = nn.Embedding(10, 4)
        ids = torch.randint(0, 10, (3, 5))

        def step() -> Any:
            loss = (table(ids[0]) + table(ids[1]) + table(ids[2])).sum()
            loss.backward()
            table.zero_grad()
            return loss

        return step

    graph = capture(workload)
    assert [op.phase for op in named(graph, "add")] == [Phase.FORWARD] * 2
    assert [op.phase for op in named(graph, "add_")] == [Phase.BACKWARD] * 2
    assert sum(s.role is Role.GRADIENT for s in graph.storages) == 1


def test_an_op_with_a_kernel_of_its_own_is_not_taken_apart() -> None:
    def workload() -> Any:
        x = torch.randn(4, requires_grad=True)

        def step() -> None:
            nn.functional.silu(x).sum().backward()
            x.grad = None

        return step

    graph = capture(workload)
    assert len(named(graph, "silu_backward")) == 1
    assert not named(graph, "sigmoid")


def test_gradients_that_are_set_to_zero_are_no_forward_work() -> None:
    def workload() -> Any:
        layer = nn.Linear(4, 4)
        x = torch.randn(2, 4)

        def step() -> torch.Tensor:
            layer.zero_grad(set_to_none=False)
            loss: torch.Tensor = layer(x).sum()
            loss.backward()
            return loss

        return step

    graph = capture(workload)
    assert {op.phase for op in graph if op.index < named(graph, "addmm")[0].index - 1} == {Phase.OTHER}
    assert {s.birth for s in graph.storages if s.role is Role.GRADIENT and s.death is None} == {None}


def test_what_backward_does_not_need_is_temporary() -> None:
    def workload() -> Any:
        x, weight = torch.randn(8), torch.randn(8, requires_grad=True)

        def step() -> None:
            y = x + 1
            y = y + 2
            loss = (weight * y).sum()
            del y
            loss.backward()
            weight.grad = None

        return step

    graph = capture(workload)
    first, second = (op.index for op in named(graph, "add"))
    roles = {s.birth: s.role for s in graph.storages}
    assert (roles[first], roles[second]) == (Role.TEMPORARY, Role.ACTIVATION)


def test_a_model_is_moved_to_other_dtypes_while_it_is_built() -> None:
    def workload() -> Any:
        first = nn.Linear(4, 4)
        model = nn.Sequential(first, nn.LayerNorm(4)).to("cpu").half().to(torch.bfloat16)
        nn.init.trunc_normal_(first.weight)
        x = torch.randn(2, 4, dtype=torch.bfloat16)
        return lambda: model(x).sum().backward()

    graph = capture(workload)
    parameters = [graph.tensors[n.tensor] for n in graph.named if n.role is Role.PARAMETER]
    assert [t.dtype for t in parameters] == ["bfloat16"] * 4
    assert graph.meta.assumptions == ()


def test_the_backward_of_a_write_through_a_view_belongs_to_its_line() -> None:
    def workload() -> Any:
        x = torch.randn(4, 5, requires_grad=True)

        def step() -> None:
            y = x.clone()
            y[:, 0].mul_(2)
            (y * 3).sum().backward()
            x.grad = None

        return step

    graph = capture(workload)
    codes = {op.source.code for op in named(graph, "new_empty_strided") if op.source is not None}
    assert "y[:, 0].mul_(2)" in codes


def test_equal_arguments_of_different_types_are_different_calls() -> None:
    def workload() -> Any:
        x = torch.randn(4)
        return lambda: [x.add(1), x.add(1.0), x.add(True)]

    added = [dict(op.call.arguments)["other"] for op in named(capture(workload), "add")]
    assert [type(value) for value in added] == [int, float, bool]
