"""Small graphs made by hand, so that every number in a report can be told in advance."""

from __future__ import annotations

from dataclasses import dataclass, field

from tensortide.graph.model import (
    OUTSIDE,
    TENSOR,
    Call,
    Graph,
    Meta,
    Module,
    Named,
    Op,
    Phase,
    Role,
    Source,
    Storage,
    Tensor,
)

WIDTH, BATCH = 64, 32


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a tensor that is laid out row by row."""
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return tuple(strides[: len(shape)])


@dataclass
class Builder:
    """Ops one after the other. A storage without a name is released after its last use."""

    ops: list[Op] = field(default_factory=list)
    calls: dict[Call, int] = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)
    storages: list[Storage] = field(default_factory=list)
    modules: list[Module] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    sources: dict[Source, int] = field(default_factory=dict)
    named: list[Named] = field(default_factory=list)

    def module(self, path: str, kind: str) -> str:
        """A module of the model."""
        self.places[path] = len(self.modules)
        self.modules.append(Module(path, kind))
        return path

    def tensor(self, shape: tuple[int, ...], role: Role, name: str = "", birth: int | None = None) -> int:
        """A tensor with a storage of its own."""
        strides = contiguous(shape)
        tensor = Tensor(len(self.storages), "float32", shape, strides)
        self.storages.append(Storage(tensor.numel * 4, "cpu", role, birth, None, name))
        self.tensors.append(tensor)
        if name:
            self.named.append(Named(name, role, len(self.tensors) - 1, trainable=role is Role.PARAMETER))
        return len(self.tensors) - 1

    def view(self, of: int, shape: tuple[int, ...]) -> int:
        """Another tensor in the storage of ``of``."""
        self.tensors.append(Tensor(self.tensors[of].storage, "float32", shape, (1, shape[0])))
        return len(self.tensors) - 1

    def op(
        self,
        name: str,
        inputs: tuple[int, ...],
        outputs: tuple[int, ...] = (),
        phase: Phase = Phase.FORWARD,
        module: str | None = None,
        mutated: tuple[int, ...] = (),
        line: int = 0,
        recompute: bool = False,
    ) -> int:
        """An op that takes its inputs by position."""
        names = ("self", "mat2" if ".mm." in name else "other", "third")
        call = Call(name, tuple((names[i], TENSOR) for i in range(len(inputs))), len(inputs), mutated)
        source = Source("/home/someone/train.py", line, "step", f"line {line} of the step")
        at = self.sources.setdefault(source, len(self.sources)) if line else OUTSIDE
        where = OUTSIDE if module is None else self.places[module]
        index = self.calls.setdefault(call, len(self.calls))
        self.ops.append(Op(index, inputs, outputs, phase, where, at, recompute))
        return len(self.ops) - 1

    def output(self, shape: tuple[int, ...], role: Role, name: str = "") -> int:
        """A tensor that the next op makes."""
        return self.tensor(shape, role, name, birth=len(self.ops))

    def graph(self, **meta: object) -> Graph:
        last: dict[int, int] = {}
        for i, op in enumerate(self.ops):
            for tensor in op.inputs + op.outputs:
                last[self.tensors[tensor].storage] = i
        storages = [
            Storage(s.nbytes, s.device, s.role, s.birth, None if s.name else last.get(i, 0) + 1, s.name)
            for i, s in enumerate(self.storages)
        ]
        parts = (self.ops, self.calls, self.tensors, storages, self.modules, self.sources)
        ops, calls, tensors, storages_, modules, sources = (tuple(part) for part in parts)
        about = Meta(**{"workload": "tower", "framework": "torch 2.13.0", "python": "3.11.7", **meta})  # type: ignore[arg-type]
        return Graph(ops, calls, tensors, storages_, modules, sources, (), tuple(self.named), about)  # type: ignore[arg-type]


def tower(layers: int = 4, *, train: bool = True, hostile: str = "") -> Graph:
    """A tower of equal layers (a product and a relu each), trained by plain gradient descent."""
    b = Builder()
    stem = hostile or "layers"
    b.module("", "Tower")
    b.module(stem, "ModuleList")
    for i in range(layers):
        b.module(f"{stem}.{i}", "Block")
        b.module(f"{stem}.{i}.fc", "Linear")
    weights = [b.tensor((WIDTH, WIDTH), Role.PARAMETER, f"{stem}.{i}.fc.weight") for i in range(layers)]
    x = b.tensor((BATCH, WIDTH), Role.INPUT, "x")
    kept = []
    for i, weight in enumerate(weights):
        kept.append(x)
        h = b.output((BATCH, WIDTH), Role.TEMPORARY)
        b.op("aten.mm.default", (x, weight), (h,), module=f"{stem}.{i}.fc", line=10)
        x = b.output((BATCH, WIDTH), Role.ACTIVATION)
        b.op("aten.relu.default", (h,), (x,), module=f"{stem}.{i}", line=11)
    if train:
        _train(b, weights, kept, x, stem)
    return b.graph(hyperparameters={"batch": BATCH, "width": WIDTH, "layers": layers})


def _train(b: Builder, weights: list[int], kept: list[int], x: int, stem: str) -> None:
    gradient = x
    grads = []
    for i in reversed(range(len(weights))):
        path = f"{stem}.{i}.fc"
        grads.append(b.output((WIDTH, WIDTH), Role.GRADIENT, f"{path}.weight.grad"))
        turned = b.view(kept[i], (WIDTH, BATCH))
        b.op("aten.mm.default", (turned, gradient), (grads[-1],), Phase.BACKWARD, path, line=10)
        below = b.output((BATCH, WIDTH), Role.TEMPORARY)
        b.op("aten.mm.default", (gradient, weights[i]), (below,), Phase.BACKWARD, path, line=10)
        gradient = below
    for weight, grad in zip(reversed(weights), grads, strict=True):
        b.op("aten.add_.Tensor", (weight, grad), (weight,), Phase.OPTIMIZER, mutated=(0,), line=20)


def alone() -> Graph:
    """One op, no modules, no name."""
    b = Builder()
    x = b.tensor((3, 4), Role.INPUT, "x")
    b.op("mylib.mystery.default", (x,), (b.output((3, 4), Role.OUTPUT),))
    return b.graph(workload="", framework="", python="")


def empty() -> Graph:
    """A step that does nothing."""
    return Builder().graph()
