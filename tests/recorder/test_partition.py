"""PyTorch's partitioner on captured steps saves what it saves of the joint graphs that PyTorch traces itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

from tensortide import capture
from tensortide.errors import PlanError, TorchUnavailable
from tensortide.graph.model import Graph, Phase
from tensortide.recorder import partition as module
from tensortide.recorder.joint_graph import passes
from tensortide.recorder.partition import Partitioner
from tensortide.recorder.torch_compat import partitioner

SETTINGS = (0.6, 0.4, 0.2, 0.0)


def chain(layer: Callable[[], nn.Module], count: int = 3) -> nn.Sequential:
    return nn.Sequential(*(part for _ in range(count) for part in (nn.Linear(16, 16), layer())), nn.Linear(16, 4))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(chain(nn.Tanh, 2)[:4] for _ in range(2))
        self.last = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            x = x + part(x)
        result: torch.Tensor = self.last(x)
        return result


def convolutions() -> nn.Sequential:
    parts = (p for n in (3, 8, 8) for p in (nn.Conv2d(n, 8, 3, padding=1), nn.ReLU(inplace=True)))
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(8 * 64, 4))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "perceptron": (lambda: chain(nn.ReLU), (64, 16)),
    "smooth": (lambda: chain(nn.GELU), (64, 16)),
    "residual": (Residual, (64, 16)),
    "convolutions, in place": (convolutions, (4, 3, 8, 8)),
}


def captured(model: nn.Module, data: torch.Tensor) -> Graph:
    def step() -> torch.Tensor:
        loss: torch.Tensor = model(data).square().mean()
        loss.backward()
        return loss

    return capture(step)


@cache
def trained(name: str) -> tuple[nn.Module, torch.Tensor, Graph]:
    make, shape = MODELS[name]
    model, data = make(), torch.randn(shape)
    return model, data, captured(model, data)


def saved_by_pytorch(model: nn.Module, data: torch.Tensor, setting: float) -> int:
    """Bytes that the partitioner saves of the joint graph that AOTAutograd traces, beside its inputs."""
    from functorch.compile import (  # type: ignore[import-untyped]
        aot_function,
        min_cut_rematerialization_partition,
        nop,
    )
    from torch._functorch import config

    names, parameters = zip(*model.named_parameters(), strict=True)
    seen: list[int] = []

    def run(data: torch.Tensor, *given: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.func.functional_call(model, dict(zip(names, given, strict=True)), (data,))
        return result.square().mean()

    def split(joint: Any, inputs: Any, *, num_fwd_outputs: int, **rest: Any) -> Any:
        forward, backward = min_cut_rematerialization_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **rest)
        outputs = list(forward.graph.nodes)[-1].args[0][num_fwd_outputs:]
        made = [node.meta["val"] for node in outputs if node.op != "placeholder"]
        given = {node.meta["val"].untyped_storage()._cdata for node in joint.graph.find_nodes(op="placeholder")}
        own = {v.untyped_storage()._cdata: v.untyped_storage().nbytes() for v in made}
        seen.append(sum(nbytes for key, nbytes in own.items() if key not in given))
        return forward, backward

    with config.patch(activation_memory_budget=setting):
        aot_function(run, fw_compiler=nop, partition_fn=split)(data, *parameters).backward()
    return seen[0]


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        pytest.param(name, SETTINGS[(i + j) % 4], marks=pytest.mark.slow if j or i > 1 else ())
        for i, name in enumerate(MODELS)
        for j in (0, 2)
    ],
)
def test_as_much_is_saved_as_of_the_graph_that_pytorch_traces(name: str, setting: float) -> None:
    model, data, graph = trained(name)
    found = Partitioner(graph).partition(setting)
    (saved,) = found.saved.values()
    own = [graph.storages[s] for s in saved if graph.storages[s].birth is not None]
    assert sum(int(storage.nbytes) for storage in own) == saved_by_pytorch(model, data, setting)


def test_each_pair_of_passes_is_a_graph_of_its_own() -> None:
    model = chain(nn.ReLU)
    batches = [torch.randn(256, 16) for _ in range(2)]

    def step() -> None:
        for batch in batches:
            model(batch).sum().backward()

    graph = capture(step)
    pairs = passes(graph)
    assert len(pairs) == 2
    found = Partitioner(graph).partition(1.0)
    assert sorted(found.saved) == [pair.middle for pair in pairs]
    for pair in pairs:
        assert graph.ops[pair.middle - 1].phase is Phase.FORWARD
        assert graph.ops[pair.middle].phase is Phase.BACKWARD
        assert found.forward[pair.middle] == pair.begin
        made = {s for op in range(pair.begin, pair.middle) for s in graph.index.allocated[op]}
        assert made & found.saved[pair.middle]


def test_a_setting_saves_the_same_whatever_was_asked_before() -> None:
    _, _, graph = trained("residual")
    one = Partitioner(graph)
    first, last = (Partitioner(graph).partition(setting) for setting in (0.6, 0.0))
    assert first != last
    assert [one.partition(setting) for setting in (0.6, 0.0, 0.6)] == [first, last, first]


def test_the_caller_may_give_the_gradient() -> None:
    model, data, gradient = chain(nn.ReLU), torch.randn(8, 16), torch.randn(8, 4)

    def step() -> None:
        model(data).backward(gradient)

    graph = capture(step)
    made_by = Partitioner(graph)
    least, most = made_by.partition(0.0), made_by.partition(1.0)
    (few,), (many,) = least.saved.values(), most.saved.values()
    made = {number for number, storage in enumerate(graph.storages) if storage.birth is not None}
    assert not few & made
    assert many & made


def test_what_cannot_be_partitioned_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = chain(nn.ReLU), torch.randn(8, 16)
    with pytest.raises(PlanError, match="no backward pass"):
        Partitioner(capture(lambda: model(data)))
    graph = captured(model, data)

    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("a first line\nand a second")

    settings = partitioner()[1]
    monkeypatch.setattr(module, "partitioner", lambda: (fails, settings))
    with pytest.raises(PlanError, match=r"it fails: a first line$"):
        Partitioner(graph).partition(0.5)
    monkeypatch.setattr(module, "partitioner", lambda: (fails, object()))
    with pytest.raises(TorchUnavailable, match="takes no memory budget"):
        Partitioner(graph).partition(0.5)
