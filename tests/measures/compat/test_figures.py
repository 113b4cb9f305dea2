"""What that tool counts of any model: against a trace of PyTorch's own, and by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import nn
from torch.nn import functional as F

from tensortide import capture
from tensortide.errors import Unavailable
from tensortide.graph import Graph
from tensortide.measures.compat.figures import Figure, figures
from tensortide.measures.compat.nodes import node_graph
from tensortide.recorder.torch_compat import key_above_autograd

pytestmark = pytest.mark.skipif(key_above_autograd is None, reason="this PyTorch takes no handler above autograd")


class Function(nn.Module):
    def __init__(self, function: Callable[..., Any], *parameters: nn.Parameter) -> None:
        super().__init__()
        self.function, self.parameters_of = function, nn.ParameterList(parameters)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs, *self.parameters_of)


def graph_of(model: nn.Module, *inputs: torch.Tensor) -> Graph:
    return capture(model.eval(), inputs)


def figure(name: str, graph: Graph, **options: Any) -> Figure:
    return next(one for one in figures(graph, **options) if one.name == name)


def weight(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.rand(shape))


def image() -> torch.Tensor:
    return torch.rand(2, 4, 8, 8)


TRACED: dict[str, tuple[Callable[[], nn.Module], tuple[Callable[[], torch.Tensor], ...]]] = {
    "convolutions": (
        lambda: nn.Sequential(nn.Conv2d(4, 6, 3, groups=2), nn.GELU(), nn.ConvTranspose2d(6, 4, 2, 2), nn.Softmax(1)),
        (image,),
    ),
    "norms": (
        lambda: nn.Sequential(nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True), nn.SiLU(), nn.LayerNorm((8, 8))),
        (image,),
    ),
    "views": (lambda: Function(lambda x: x[:, :, 1:3].reshape(2, -1).contiguous().unsqueeze(1)[..., None]), (image,)),
    "whole slices": (lambda: Function(lambda x: x[:, :] * x[:, 0:4] + x[:, 1].unsqueeze(1)), (image,)),
    "products": (lambda: Function(lambda x, w: x @ w + F.linear(x, w).sum(-1, keepdim=True), weight(8, 8)), (image,)),
    "pools": (lambda: nn.Sequential(nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.ReLU6()), (image,)),
    "attention": (lambda: Function(lambda x: F.scaled_dot_product_attention(x, x, x).softmax(-1)), (image,)),
    "lists": (lambda: Function(lambda x: torch.cat([part * 2 for part in x.chunk(2, 1)], 1)), (image,)),
    "in place": (lambda: Function(lambda x: F.relu_(x * 1.5).add_(1).mul_(2)), (image,)),
    "dead": (lambda: Function(lambda x: (torch.exp(x), x + 1)[1]), (image,)),
    "unbatched": (lambda: nn.Conv2d(4, 4, 3), (lambda: torch.rand(4, 8, 8),)),
    "recurrent": (lambda: nn.GRU(8, 4, batch_first=True), (lambda: torch.rand(2, 5, 8),)),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("name", TRACED)
def test_nodes_are_those_of_a_trace(name: str) -> None:
    """The names in order, without constants, lists and arithmetic on sizes."""
    build, makers = TRACED[name]
    model, inputs = build().eval(), tuple(make() for make in makers)
    with torch.no_grad():
        trace = torch.jit.trace(model, inputs, check_trace=False).inlined_graph
    torch._C._jit_pass_dce(trace)
    skipped = ("size", "Int", "ScalarImplicit", "NumToTensor")
    traced = [n.kind().removeprefix("aten::") for n in trace.nodes() if n.kind().startswith("aten::")]
    nodes = node_graph(graph_of(model, *inputs)).nodes
    assert [node.name for node in nodes] == [kind for kind in traced if kind not in skipped]


def test_a_transposed_convolution_is_charged_at_its_output() -> None:
    found = figure("flops", graph_of(nn.ConvTranspose2d(4, 6, 2, 2, bias=False), image()))
    out = 2 * 6 * 16 * 16
    assert found.ours == 2 * 4 * 64 * 6 * 4
    assert found.theirs == out * 4 * 4 + out
    assert found.remainder == 0


def test_a_frozen_model_has_no_parameters_there() -> None:
    found = {one.name: one for one in figures(graph_of(nn.Linear(64, 64).requires_grad_(False), torch.rand(1, 64)))}
    assert (found["total_params"].theirs, found["model_size"].theirs) == (0, 0)
    assert (found["total_params"].ours, found["model_size"].ours) == (4160, 4 * 4160)


def test_two_bytes_count_as_four() -> None:
    graph = graph_of(nn.Linear(64, 64, dtype=torch.bfloat16), torch.rand(1, 64, dtype=torch.bfloat16))
    found = figure("model_size", graph)
    assert found.shown == 0.015869140625
    assert found.ours / (1 << 20) == 0.0079345703125
    assert [(reason.text, reason.amount) for reason in found.reasons] == [("bfloat16 counted as 4 bytes", 2 * 4160)]


def test_modules_may_give_values_of_their_own() -> None:
    graph = graph_of(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), torch.rand(1, 8))
    assert figure("flops", graph, charged={"0": 1000}).theirs == 1000 + 8
    assert figure("model_size", graph, element_bytes={"0.weight": 1}).theirs == 64 + 4 * 8


@pytest.mark.parametrize(
    ("function", "inputs", "options", "reason"),
    [
        (torch.bmm, (torch.rand(2, 3, 4), torch.rand(2, 4, 5)), {}, "products of two operands, as bmm is"),
        (torch.mm, (torch.rand(3, 4), torch.rand(4, 5)), {}, "products of two operands, as mm is"),
        (torch.relu, (torch.rand(3),), {"keywords": True}, "by name alone"),
        (torch.abs, (torch.rand(3, dtype=torch.complex64),), {}, "no complex inputs"),
    ],
)
def test_where_that_tool_fails_the_reason_stands_beside_our_value(
    function: Callable[..., Any], inputs: tuple[torch.Tensor, ...], options: dict[str, Any], reason: str
) -> None:
    for one in figures(graph_of(Function(function), *inputs), **options):
        assert one.theirs is None
        assert one.missing is not None
        assert one.missing.reason.startswith("not available there: ")
        assert reason in one.missing.reason
        assert one.ours >= 0
        assert one.difference is None


def test_a_graph_without_composite_calls_or_with_a_backward_is_refused() -> None:
    graph = graph_of(nn.Linear(4, 4), torch.rand(1, 4))
    with pytest.raises(Unavailable, match="capture it again"):
        figures(replace(graph, composites=None))
    with pytest.raises(Unavailable, match="no inference forward"):
        figures(capture(nn.Linear(4, 4), torch.rand(1, 4), loss="sum"))


def test_figures_of_random_shapes_leave_no_remainder() -> None:
    for rows in (1, 3):
        for model in (nn.LSTM(4, 4), nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), nn.Bilinear(4, 4, 3)):
            inputs = (torch.rand(rows, 5, 4),) * (2 if isinstance(model, nn.Bilinear) else 1)
            assert [one.remainder for one in figures(graph_of(model, *inputs), batch=rows)] == [0] * 4
