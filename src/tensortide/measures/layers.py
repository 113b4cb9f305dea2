"""Layer table: what each op, or each module without those inside it, takes; the rows add up to the totals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import msgspec

from tensortide.errors import MetricError, Unavailable
from tensortide.graph.model import OUTSIDE, Graph, Phase, Role, describe
from tensortide.measures.defaults.memory import live_results
from tensortide.measures.subject import Captured, Subject
from tensortide.shown import Show, Shown
from tensortide.timelines.module_figures import BY_MODULE, NONE
from tensortide.timelines.resident import home_of, saved_storages

if TYPE_CHECKING:
    from tensortide.timing import Durations

By = Literal["op", "module"]


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """One op, or the ops directly in one module. Views are left out: they cost nothing.

    ``parameters`` count at the first op that reads them; those that no op reads have a row of their own, without an op.
    ``saved_bytes`` are results that the backward reads; ``live_bytes`` the most bytes of results resident meanwhile.
    Costs are None where an op has no rule, ``time_ns`` where no times are known.
    """

    path: Annotated[str, Show("Module", "path", fold=True)]
    op: Annotated[str, Show("Op", "name", fold=True)]
    ops: int = 1
    phase: Annotated[str, Show("Phase", at_width=150, fold=True)] = ""
    inputs: Annotated[str, Show("Inputs", "code", at_width=190, fold=True)] = ""
    outputs: Annotated[str, Show("Outputs", "code", at_width=110, fold=True)] = ""
    weights: Annotated[str, Show("Weights", "code", at_width=130, fold=True)] = ""
    parameters: Annotated[int, Show("Params", "amount", zero="-")] = 0
    parameter_bytes: int = 0
    macs: Annotated[int | None, Show("MACs", zero="-")] = 0
    elementwise_flops: Annotated[int | None, Show("Elementwise", zero="-")] = 0
    accessed_bytes: Annotated[int | None, Show("Bytes", at_width=96, zero="-")] = 0
    saved_bytes: Annotated[int, Show("Saved", at_width=118, zero="-")] = 0
    live_bytes: Annotated[int, Show("Live", zero="-")] = 0
    time_ns: Annotated[int | None, Show("Time", zero="-")] = None


@dataclass(frozen=True, repr=False)
class Layers(Shown):
    """Rows in the order of execution, or of the model, and the graph that they are of."""

    SECTION = "metrics"

    by: By
    rows: tuple[Layer, ...]
    graph: Graph


def layers(subject: Subject, by: By = "op", batch_size: int | None = None) -> Layers:
    """Make the layer table of a step, or of the inference forward of a model.

    Its MACs, elementwise FLOPs, bytes and parameters add up to those metrics of the subject.
    """
    if by not in get_args(By):
        raise MetricError(f"layers are by {' or '.join(get_args(By))}, not {by!r}")
    try:
        times: Durations | None = subject.durations
    except Unavailable:
        times = None
    found = _Table(subject.captured(batch_size), times)
    rows = found.by_op if by == "op" else found.by_module
    return Layers(by, tuple(rows), found.graph)


_SUMS = tuple(name for name in Layer.__struct_fields__ if name in BY_MODULE.values() and name != "ops")
"""Figures of modules that are columns."""


class _Table:
    def __init__(self, captured: Captured, times: Durations | None) -> None:
        self.captured, self.graph, self.times = captured, captured.graph, times
        self.homes = {module.path: index for index, module in enumerate(self.graph.modules)}

    @cached_property
    def parameters(self) -> dict[int, str]:
        """Each parameter, tied ones once, by its tensor, with its name."""
        found: dict[int, str] = {}
        for named in self.graph.named:
            if named.role is Role.PARAMETER:
                found.setdefault(named.tensor, named.name)
        return found

    @cached_property
    def working(self) -> list[int]:
        """The ops that totals count and that are no views."""
        return [op for op in self.captured.count.running if not self.graph[op].is_view]

    @cached_property
    def owners(self) -> dict[int, int]:
        """The first working op that reads each parameter; by storage, as ops may read views of it."""
        first: dict[int, int] = {}
        for op in self.working:
            for storage in self.graph.index.reads[op]:
                first.setdefault(storage, op)
        return {tensor: first.get(self.graph.tensors[tensor].storage, OUTSIDE) for tensor in self.parameters}

    @cached_property
    def live(self) -> list[int]:
        """Bytes of results resident during each op."""
        return live_results(self.captured.memory)

    @cached_property
    def saved(self) -> dict[int, int]:
        """Saved bytes by the op that made them."""
        found: dict[int, int] = defaultdict(int)
        for index in saved_storages(self.graph):
            storage = self.graph.storages[index]
            found[storage.birth or 0] += storage.nbytes
        return found

    @property
    def by_op(self) -> list[Layer]:
        """A row for each op but views, and one for parameters that no op reads."""
        held = self._held(self.owners.__getitem__)
        rows = [self._row(op, held.pop(op, ())) for op in self.working]
        lost = [tensor for several in held.values() for tensor in several]
        return [*rows, *([self._unread(lost)] if lost else [])]

    def _held(self, place: Callable[[int], int]) -> dict[int, list[int]]:
        """The parameters by the op or module that ``place`` gives each."""
        held: dict[int, list[int]] = defaultdict(list)
        for tensor in self.parameters:
            held[place(tensor)].append(tensor)
        return held

    def _row(self, index: int, parameters: Sequence[int]) -> Layer:
        op, cost = self.graph[index], self.captured.count.costs[index].cost
        return Layer(
            path=op.module,
            op=op.name,
            phase="recompute" if op.op.recompute else op.phase.value,
            inputs=" ".join(map(describe, op.inputs)),
            outputs=" ".join(map(describe, op.outputs)),
            **self._weights(parameters),
            macs=None if cost is None else cost.macs,
            elementwise_flops=None if cost is None else cost.elementwise_flops,
            accessed_bytes=None if cost is None else cost.bytes,
            saved_bytes=self.saved.get(index, 0),
            live_bytes=self.live[index],
            time_ns=None if self.times is None else self.times.ns[index],
        )

    def _weights(self, parameters: Sequence[int]) -> dict[str, Any]:
        """The values of a row that are of its parameters."""
        tensors = [self.graph.tensors[tensor] for tensor in parameters]
        return {
            "weights": " ".join(map(describe, tensors)),
            "parameters": sum(tensor.numel for tensor in tensors),
            "parameter_bytes": sum(tensor.nbytes for tensor in tensors),
        }

    def _unread(self, parameters: Sequence[int]) -> Layer:
        names = ", ".join(sorted(self.parameters[tensor] for tensor in parameters))
        return Layer(path="(outside)", op="", ops=0, **{**self._weights(parameters), "weights": names})

    @property
    def by_module(self) -> list[Layer]:
        """A row for each module, with its own ops and the parameters that it owns by name."""
        groups: dict[int, list[int]] = {index: [] for index in [*range(len(self.graph.modules)), OUTSIDE]}
        for op in self.working:
            groups[self.graph.ops[op].module].append(op)
        held = self._held(lambda tensor: home_of(self.parameters[tensor], self.homes))
        rows = [self._module(module, ops, held.get(module, [])) for module, ops in groups.items()]
        return [row for row in rows if row.ops or row.parameters or row.path != "(outside)"]

    def _module(self, module: int, ops: Sequence[int], parameters: Sequence[int]) -> Layer:
        own = [self._row(op, ()) for op in ops]
        forward = [row for row in own if row.phase == Phase.FORWARD]
        path = self.graph.module_path(module)
        figures = self.captured.modules.get(path, NONE)
        sums: dict[str, Any] = {name: getattr(figures, name) for name in _SUMS}
        return Layer(
            path=path,
            op="" if module == OUTSIDE else self.graph.modules[module].type,
            ops=len(own),
            inputs=forward[0].inputs if forward else "",
            outputs=forward[-1].outputs if forward else "",
            **{**self._weights(parameters), **sums},
            live_bytes=max((row.live_bytes for row in own), default=0),
            time_ns=None if self.times is None else sum(row.time_ns or 0 for row in own),
        )
