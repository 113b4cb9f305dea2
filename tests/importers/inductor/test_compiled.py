"""The compiler's graphs of a model without its dumps: sizes against what PyTorch says, kernels against real dumps."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from tensortide.errors import CaptureError  # noqa: E402
from tensortide.graph import Phase, Role, validate  # noqa: E402
from tensortide.importers.imported import Imported  # noqa: E402
from tensortide.importers.inductor.importer import find_dumps  # noqa: E402
from tensortide.importers.inductor.read import read_dumps  # noqa: E402

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of PyTorch, about PyTorch
    from tensortide.importers.inductor import compiled as compiled_module
    from tensortide.importers.inductor.compiled import compiled_trace


class Block(nn.Module):
    """Embedding, attention, dropout, and a weight used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.project = nn.Linear(32, 96)
        self.norm = nn.LayerNorm(32)
        self.drop = nn.Dropout(0.1)

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids)
        q, k, v = (t.view(2, 12, 4, 8).transpose(1, 2) for t in self.project(self.norm(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return F.linear(x + self.drop(y.transpose(1, 2).reshape(x.shape)), self.embed.weight)


def conv() -> tuple[nn.Module, Any]:
    layers = [nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(True), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(8 * 8 * 8, 10)), torch.randn(4, 3, 16, 16)


def attention() -> tuple[nn.Module, Any]:
    return Block(), torch.randint(0, 50, (2, 12))


def recurrent() -> tuple[nn.Module, Any]:
    return nn.LSTM(8, 16, batch_first=True), torch.randn(2, 5, 8)


Seen = list[tuple[str, tuple[str, list[int]]]]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Every tensor node of the graphs whose text is parsed, with dtype and shape as PyTorch's own nodes have them."""
    nodes: Seen = []
    passes: Callable[..., None] = vars(compiled_module)["_recursive_post_grad_passes"]

    def watched(module: Any, **kwargs: Any) -> None:
        passes(module, **kwargs)
        for node in module.graph.nodes:
            value = node.meta.get("val")
            if isinstance(value, torch.Tensor) and node.op != "output":
                nodes.append((node.name, (str(value.dtype).removeprefix("torch."), [int(n) for n in value.shape])))

    monkeypatch.setattr(compiled_module, "_recursive_post_grad_passes", watched)
    return nodes


@pytest.mark.parametrize("build", [conv, attention, recurrent])
def test_sizes_are_those_of_the_nodes(build: Callable[[], tuple[nn.Module, Any]], seen: Seen) -> None:
    model, inputs = build()
    trace = compiled_trace(model, inputs, loss="sum")
    validate(trace.graph)
    assert {op.phase for op in trace.graph.ops} == {Phase.FORWARD, Phase.BACKWARD}
    known = dict(zip(trace.tensors, trace.graph.tensors, strict=True))
    assert len(seen) >= len(trace.tensors)
    for name, kind in seen:
        assert name in known
        same = [t for n, t in zip(trace.tensors, trace.graph.tensors, strict=True) if n == name]
        assert kind in [(tensor.dtype, list(tensor.shape)) for tensor in same]


def test_the_model_is_named_and_left_alone() -> None:
    model, inputs = conv()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trace = compiled_trace(model, inputs, loss="sum")
    names = [entry.name for entry in trace.graph.named]
    assert names == [name for name, _ in [*model.named_parameters(), *model.named_buffers()]]
    assert [storage.name for storage in trace.graph.storages][: len(names)] == names
    assert [entry.role for entry in trace.graph.named] == [Role.PARAMETER] * 5 + [Role.BUFFER] * 3
    assert "forward" not in model.__dict__
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_kernels_of_real_dumps(reference: Path) -> None:
    dumps = find_dumps(reference / "g10" / "fx_sample")
    model, inputs = conv()
    found = compiled_trace(model, inputs, loss="sum")
    assert kernels(found) == kernels(read_dumps(dumps.forward, dumps.backward))


def kernels(trace: Imported) -> Counter[tuple[str, str, tuple[object, ...]]]:
    graph = trace.graph
    return Counter(
        (op.phase.value, graph.calls[op.call].op, tuple(graph.tensors[t].shape for t in (*op.inputs, *op.outputs)))
        for op in graph.ops
    )


def test_workloads_and_inference() -> None:
    def workload(width: int = 4) -> Callable[[], None]:
        model, criterion = nn.Linear(width, 2), nn.MSELoss()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step() -> None:
            criterion(model(torch.ones(3, width)), torch.ones(3, 2)).backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    trace = compiled_trace(workload, hyperparameters={"width": 6})
    assert trace.graph.storages[0].nbytes == 2 * 6 * 4
    assert trace.tensors[-1] in ("mm", "sum_1", "view", "permute_3")
    model, inputs = conv()
    inference = compiled_trace(model.eval(), inputs)
    assert {op.phase for op in inference.graph.ops} == {Phase.FORWARD}


def test_steps_without_one_model() -> None:
    with pytest.raises(CaptureError, match="calls no module with parameters"):
        compiled_trace(lambda: torch.ones(2) + 1)
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)

    def step() -> None:
        second(first(torch.ones(1, 2))).sum().backward()

    with pytest.raises(CaptureError, match="several modules with parameters, or one in several ways; the second is s"):
        compiled_trace(step)
    with pytest.raises(CaptureError, match="inputs, loss and optimizer go with a model"):
        compiled_trace(step, torch.ones(1))
