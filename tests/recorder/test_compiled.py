"""The graphs of ``torch.compile``, recorded op by op: the same figures as eagerly where they ought to be, kernels of
real dumps, and parts of a step in the order in which they run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tensortide import capture, count, timeline
from tensortide.errors import WorkloadError
from tensortide.graph import Graph, Phase, Role, validate
from tensortide.importers.inductor.importer import find_dumps
from tensortide.importers.inductor.read import read_dumps
from tensortide.recorder import resolver
from tensortide.reports.sections import Step


@pytest.fixture(scope="module", autouse=True)
def _compiler() -> None:
    """Import PyTorch's compiler for these tests alone: each process that collects them would."""
    pytest.importorskip("tensortide.recorder.compiled", exc_type=ImportError)


SLOW = pytest.mark.slow
Workload = Callable[[], Callable[[], Any]]


class Block(nn.Module):
    """A residual layer; it prints (a graph break) or reads a value in its middle if that is wanted."""

    def __init__(self, middle: str = "") -> None:
        super().__init__()
        self.norm, self.up, self.down, self.middle = nn.LayerNorm(16), nn.Linear(16, 64), nn.Linear(64, 16), middle

    def forward(self, x: Any) -> Any:
        h = F.gelu(self.up(self.norm(x)))
        if self.middle == "print":
            print("middle", end="")  # noqa: T201
        if self.middle == "item" and h.sum().item() > 0:
            h = h * 2
        return x + self.down(h)


class Checkpointed(Block):
    def forward(self, x: Any) -> Any:
        return checkpoint(super().forward, x, use_reentrant=False)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return 2 * ctx.saved_tensors[0] * gradient


class Squared(Block):
    def forward(self, x: Any) -> Any:
        return Square.apply(super().forward(x))


def step_of(model: Any, loss: Any = F.mse_loss, *, compiled_update: bool = False) -> Callable[[], Any]:
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    update = torch.compile(optimizer.step) if compiled_update else optimizer.step
    x, y = torch.randn(8, 16), torch.randn(8, 16)

    def step() -> None:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        update()

    return step


def plain() -> Any:
    return step_of(nn.Sequential(Block(), Block()))


def whole(middle: str = "", **options: Any) -> Any:
    return step_of(torch.compile(nn.Sequential(Block(middle), Block()), **options))


def one_of_two() -> Any:
    model: Any = nn.Sequential(Block(), Block())
    model[1] = torch.compile(model[1])
    return step_of(model)


def in_place() -> Any:
    model = nn.Sequential(Block(), Block())
    model[0].compile()
    return step_of(model)


def function() -> Any:
    @torch.compile
    def loss(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return ((output - y) ** 2).mean()

    return step_of(nn.Sequential(Block()), loss)


def whole_step() -> Any:
    return torch.compile(step_of(nn.Sequential(Block(), Block())))


WORKLOADS: dict[str, tuple[Workload, int]] = {
    "nothing": (plain, 2),
    "model": (whole, 2),
    "part": (one_of_two, 2),
    "in place": (in_place, 2),
    "function": (function, 2),
    "one graph": (lambda: whole(fullgraph=True), 2),
    "dynamic": (lambda: whole(dynamic=True), 2),
    "print": (lambda: whole("print"), 6),
    "item": (lambda: whole("item"), 6),
    "checkpoint": (lambda: step_of(torch.compile(Checkpointed())), 2),
    "autograd function": (lambda: step_of(torch.compile(Squared())), 2),
    "optimizer": (lambda: step_of(torch.compile(Block()), compiled_update=True), 3),
    "step": (whole_step, 3),
}
"""Workloads with what they compile, and the number of graphs of a step."""


@cache
def graph_of(name: str) -> Graph:
    """The graphs of a workload on fake tensors."""
    return capture(WORKLOADS[name][0], compiled=True)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def bytes_of(graph: Graph, role: Role) -> int:
    return sum(storage.nbytes for storage in graph.storages if storage.role is role)


def macs(graph: Graph) -> Counter[str]:
    found: Counter[str] = Counter()
    for op, item in zip(graph, count(graph).costs, strict=True):
        found[op.phase] += item.cost.macs if item.cost is not None else 0
    return +found


QUICK = ("model", "checkpoint")


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=SLOW) for name in WORKLOADS])
def test_figures_agree_with_those_of_eager_execution(name: str) -> None:
    workload, graphs = WORKLOADS[name]
    eager, compiled = capture(workload), graph_of(name)
    validate(compiled)
    assert (compiled.meta.graphs, compiled.meta.compiled, eager.meta.graphs) == (graphs, False, 0)
    assert eager.meta.compiled == (name != "nothing")
    assert macs(compiled) == macs(eager)
    for role in (Role.PARAMETER, Role.GRADIENT, Role.OPTIMIZER_STATE, Role.INPUT):
        assert bytes_of(compiled, role) == bytes_of(eager, role), role
    saved = sum(
        s.nbytes for s in eager.storages if s.role is Role.ACTIVATION and eager[s.birth or 0].phase == "forward"
    )
    assert bytes_of(compiled, Role.ACTIVATION) <= saved + 4  # the gradient of the loss may be kept a little longer
    assert all(item.cost is not None for item in count(compiled, resolver=resolver).costs)


def test_without_recomputation_the_flops_are_equal() -> None:
    def workload() -> Any:
        layers = [nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16)]
        return step_of(nn.Sequential(*layers))

    eager, compiled = capture(workload), capture(workload, compiled=True)
    again = {index for index, op in enumerate(compiled.ops) if op.recompute}
    costs = count(compiled).costs
    assert all(item.cost is not None and item.cost.flops == 0 for index in again for item in [costs[index]])
    total, same = count(eager).total.cost, count(compiled).total.cost
    # the compiler writes the ReLU's gradient as a comparison and a selection: one more per element
    assert same.flops - total.flops == 8 * 64
    assert same.macs == total.macs


def test_parts_run_in_their_order() -> None:
    graph = graph_of("print")
    order = [(op.phase, op.module) for op in graph if op.name in ("aten.addmm.default", "aten.mm.default")]
    layers = [f"_orig_mod.{name}" for name in ("0.up", "0.down", "1.up", "1.down")]
    assert [module for phase, module in order if phase is Phase.FORWARD] == layers
    backward = [module for phase, module in order if phase is Phase.BACKWARD]
    assert list(dict.fromkeys(backward)) == layers[::-1]
    lines = {op.source.code for op in graph if op.source is not None and op.module == layers[0] and "mm" in op.name}
    assert lines == {"h = F.gelu(self.up(self.norm(x)))"}


def test_checkpoints_and_the_compiler_recompute() -> None:
    graph = graph_of("checkpoint")
    again = [op.name for index, op in enumerate(graph) if graph.ops[index].recompute]
    assert "aten.addmm.default" in again
    assert all(op.phase is Phase.BACKWARD for index, op in enumerate(graph) if graph.ops[index].recompute)


def test_updates_of_a_compiled_optimizer_are_in_place() -> None:
    def build() -> Any:
        model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(4)])
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        x = torch.randn(2, 256)

        def step() -> None:
            model(x).sum().backward()
            update()
            optimizer.zero_grad()

        update = torch.compile(optimizer.step)
        return step

    eager, compiled = capture(build), capture(build, compiled=True)
    assert {op.phase for op in compiled if "copy_" in op.name} == {Phase.OPTIMIZER}
    layer = 256 * 257 * 4
    assert timeline(compiled).peak_bytes <= timeline(eager).peak_bytes + 2 * layer


@pytest.mark.slow
@pytest.mark.parametrize("name", ["item", "optimizer"])
def test_real_tensors_too(name: str) -> None:
    fake, real = (capture(WORKLOADS[name][0], compiled=True, real=real) for real in (None, True))
    assert [(op.name, op.phase) for op in fake] == [(op.name, op.phase) for op in real]
    assert [(s.nbytes, s.birth, s.death) for s in fake.storages] == [
        (s.nbytes, s.birth, s.death) for s in real.storages
    ]


def conv() -> tuple[nn.Module, Any]:
    layers = [nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(True), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(8 * 8 * 8, 10)), torch.randn(4, 3, 16, 16)


@cache
def conv_captured() -> tuple[nn.Module, dict[str, torch.Tensor], Graph]:
    """A model, its state before the capture of its compiled step, and that."""
    model, inputs = conv()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    return model, before, capture(model, inputs, loss="sum", compiled=True)


def test_the_kernels_of_real_dumps(reference: Path) -> None:
    dumps = find_dumps(reference / "g10" / "fx_sample")
    _, _, found = conv_captured()
    assert kernels(found, inside=True) == kernels(read_dumps(dumps.forward, dumps.backward).graph, inside=False)


def kernels(graph: Graph, *, inside: bool) -> Counter[tuple[object, ...]]:
    """Calls that are no views, without those of the loss."""
    found: Counter[tuple[object, ...]] = Counter()
    for op in graph:
        if op.name.split(".")[1] in ("view", "reshape", "permute", "detach", "expand", "full"):
            continue
        if not inside or op.module != "(outside)":
            found[op.phase, op.name, *(t.shape for t in (*op.inputs, *op.outputs))] += 1
    return found


def test_the_model_is_left_alone() -> None:
    model, before, _ = conv_captured()
    assert "_compiled_call_impl" not in vars(model) or vars(model)["_compiled_call_impl"] is None
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_what_was_compiled_stays_compiled() -> None:
    calls: list[int] = []

    def backend(module: Any, inputs: Any) -> Any:
        calls.append(len(inputs))
        return module.forward

    model = torch.compile(nn.Linear(4, 2), backend=backend)
    x = torch.ones(3, 4)
    model(x)
    capture(model, x, loss="sum", compiled=True)
    capture(model, x, loss="sum")
    model(x)
    assert len(calls) == 1


def test_the_first_line_says_so() -> None:
    for graph, line in (
        (graph_of("model"), "captured on fake tensors: ops of the 2 graphs of torch.compile"),
        (capture(whole), "captured on fake tensors: eager ops of a torch.compile'd model"),
        (capture(function), "captured on fake tensors: eager ops of a torch.compile'd model"),
        (capture(plain), "captured on fake tensors"),
    ):
        [subtitle] = Step(graph).document().subtitle
        assert subtitle.endswith(line)


def test_steps_with_nothing_to_compile() -> None:
    with pytest.raises(WorkloadError, match="has compiled, and no module with parameters"):
        capture(lambda: torch.ones(2) + 1, compiled=True)

    @torch.compile
    def broken() -> None:
        torch._dynamo.graph_break()

    with pytest.raises(WorkloadError, match="makes no graph of what the step calls"):
        capture(lambda: (broken(), torch.ones(2) + 1)[1], compiled=True)
    with pytest.raises(WorkloadError, match="for the CPU: leave out --device"):
        capture(plain, compiled=True, device="cuda")
