"""Graphs for tests: small captured ones from files, a small builder for graphs written by hand, and a hypothesis
strategy for random valid ones."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from tensortide.graph import OUTSIDE, TENSOR, Call, Graph, Module, Op, Phase, Role, Storage, Tensor
from tests.graphs.files import path_of, stored

__all__ = ["MODULES", "NAMES", "ROLES", "SIZES", "Builder", "graphs", "path_of", "stored"]


class Builder:
    """A Graph under construction. Tensors are named by what ``storage``, ``view`` and ``op`` return: their index."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.calls: dict[Call, int] = {}
        self.tensors: list[Tensor] = []
        self.storages: list[Storage] = []
        self.modules: list[Module] = []

    def storage(
        self,
        nbytes: int,
        role: Role = Role.TEMPORARY,
        birth: int | None = None,
        death: int | None = None,
        device: str = "cpu",
        name: str = "",
    ) -> int:
        """A uint8 tensor that covers a new storage."""
        self.storages.append(Storage(nbytes, device, role, birth, death, name))
        return self._tensor(len(self.storages) - 1, nbytes)

    def view(self, tensor: int, count: int) -> int:
        """A tensor of the first ``count`` bytes of the storage of ``tensor``."""
        return self._tensor(self.tensors[tensor].storage, count)

    def _tensor(self, storage: int, count: int) -> int:
        self.tensors.append(Tensor(storage, "uint8", (count,), (1,), 0))
        return len(self.tensors) - 1

    def op(
        self,
        inputs: Sequence[int] = (),
        outputs: Sequence[int] = (),
        *,
        mutated: Sequence[int] = (),
        name: str = "test.op.default",
        phase: Phase = Phase.FORWARD,
        module: int = OUTSIDE,
        tags: tuple[str, ...] = (),
    ) -> int:
        """Append an op; ``mutated`` are positions in ``inputs``. Returns its index."""
        arguments = tuple((f"x{i}", TENSOR) for i in range(len(inputs)))
        call = Call(name, arguments, len(inputs), tuple(mutated), (TENSOR,) * len(outputs), tags)
        index = self.calls.setdefault(call, len(self.calls))
        self.ops.append(Op(index, tuple(inputs), tuple(outputs), phase, module))
        return len(self.ops) - 1

    def module(self, path: str, kind: str = "Module") -> int:
        self.modules.append(Module(path, kind))
        return len(self.modules) - 1

    def graph(self) -> Graph:
        calls, storages = tuple(self.calls), tuple(self.storages)
        return Graph(tuple(self.ops), calls, tuple(self.tensors), storages, tuple(self.modules))


MODULES = ("", "a", "a.b", "a.c", "a.b.d", "e")
ROLES = st.sampled_from([*Role, Role.GRADIENT, Role.GRADIENT])
NAMES = st.sampled_from(("", "", "w.grad", "v.grad"))
SIZES = st.integers(0, 5000)


@st.composite
def graphs(draw: st.DrawFn, max_ops: int = 14, devices: Sequence[str] = ("cpu",)) -> Graph:
    """Random valid graphs: allocations, views, in-place ops, repeated inputs, deaths before, in and after the step.

    Phases come in order, modules nest by their paths, and no storage is used outside its life. Storages that exist
    before the step and those that ops allocate have any role; gradients, which have names, are drawn most often.
    """
    builder = Builder()
    for path in MODULES:
        builder.module(path)
    for _ in range(draw(st.integers(0, 4))):
        builder.storage(draw(SIZES), draw(ROLES), device=draw(st.sampled_from(devices)), name=draw(NAMES))
    count = draw(st.integers(0, max_ops))
    phases = sorted(draw(st.lists(st.sampled_from(list(Phase)), min_size=count, max_size=count)), key=list(Phase).index)
    for index, phase in enumerate(phases):
        module = draw(st.integers(OUTSIDE, len(MODULES) - 1))
        _random_op(draw, builder, index, phase, module, devices)
    return _with_deaths(draw, builder.graph())


def _random_op(
    draw: st.DrawFn, builder: Builder, index: int, phase: Phase, module: int, devices: Sequence[str]
) -> None:
    known = st.sampled_from(range(len(builder.tensors))) if builder.tensors else st.nothing()
    inputs = draw(st.lists(known, max_size=3)) if builder.tensors else []
    kind = draw(st.sampled_from(("new", "new", "view", "in_place", "nothing"))) if inputs else "new"
    if kind == "view":
        whole = builder.tensors[inputs[0]]
        builder.op(inputs[:1], [builder.view(inputs[0], draw(st.integers(0, whole.numel)))], phase=phase, module=module)
    elif kind == "in_place":
        builder.op(inputs, inputs[:1], mutated=(0,), phase=phase, module=module)
    else:
        outputs = [
            builder.storage(draw(SIZES), draw(ROLES), index, device=draw(st.sampled_from(devices)), name=draw(NAMES))
            for _ in range(draw(st.integers(1, 2)) if kind == "new" else 0)
        ]
        builder.op(inputs, outputs, phase=phase, module=module)


def _with_deaths(draw: st.DrawFn, graph: Graph) -> Graph:
    """``graph`` with a death drawn for each storage: after its last use, or beyond the end of the step."""
    last = [-1 if s.birth is None else s.birth for s in graph.storages]
    for i, op in enumerate(graph.ops):
        for tensor in (*op.inputs, *op.outputs):
            last[graph.tensors[tensor].storage] = i
    storages = tuple(
        Storage(s.nbytes, s.device, s.role, s.birth, draw(st.none() | st.integers(used + 1, len(graph))), s.name)
        for s, used in zip(graph.storages, last, strict=True)
    )
    return Graph(graph.ops, graph.calls, graph.tensors, storages, graph.modules)
