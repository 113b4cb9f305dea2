"""Calls of composite ops, which a framework takes apart into the ops of a Graph before any of them runs.

A composite call, such as ``linear`` or ``layer_norm``, runs the ops from ``start`` up to ``stop``: none where it only
passes its input on. Calls nest: ``parent`` is the composite call inside which another is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from tensortide.errors import GraphError
from tensortide.graph import model
from tensortide.graph.model import OUTSIDE, Call, count_slots

if TYPE_CHECKING:
    from tensortide.graph.model import Graph


class Composite(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One composite call: an index into the calls of its table, tensors that fill the holes, and the ops that it runs.

    A tensor is OUTSIDE if no op had touched it by the end of the call.
    """

    call: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    start: int
    stop: int
    parent: int = OUTSIDE
    module: int = OUTSIDE


class Composites(msgspec.Struct, frozen=True, gc=False):
    """All composite calls of a step in the order in which they begin, and the interned calls that they make."""

    calls: tuple[Call, ...] = ()
    runs: tuple[Composite, ...] = ()

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[tuple[Call, Composite]]:
        return ((self.calls[run.call], run) for run in self.runs)

    @property
    def outermost(self) -> tuple[int, ...]:
        """The calls that are made inside no other."""
        return tuple(index for index, run in enumerate(self.runs) if run.parent == OUTSIDE)

    def numbered(self, tensor: Callable[[int], int]) -> Composites:
        """The same calls on tensors of other numbers."""

        def moved(tensors: tuple[int, ...]) -> tuple[int, ...]:
            return tuple([index if index == OUTSIDE else tensor(index) for index in tensors])

        replace = msgspec.structs.replace
        runs = tuple([replace(run, inputs=moved(run.inputs), outputs=moved(run.outputs)) for run in self.runs])
        return Composites(self.calls, runs)


vars(model)["Composites"] = Composites  # its Graph names the type, for ``help``; to import it there would be a circle


def check_composites(table: Composites, graph: Graph) -> None:
    """Check the composite calls of ``graph``. Raises GraphError that says what is wrong and where."""
    slots = [sum(count_slots(value) for _, value in call.arguments) for call in table.calls]
    returned = [count_slots(call.returns) for call in table.calls]
    for index, call in enumerate(table.calls):
        if not 0 <= call.positional <= len(call.arguments) or any(not 0 <= s < slots[index] for s in call.mutated):
            raise GraphError(f"the call of composite ops {index} ({call.op}) has arguments that are not there")
    ends: dict[int, int] = {}  # where the last call inside each one, or inside none, has ended
    for index, run in enumerate(table.runs):
        where = f"composite call {index}"
        if not 0 <= run.call < len(table.calls):
            raise GraphError(f"{where} makes call {run.call} of {len(table.calls)}")
        if len(run.inputs) != slots[run.call] or len(run.outputs) != returned[run.call]:
            raise GraphError(f"{where} ({table.calls[run.call].op}) does not fill the holes of its call")
        if any(not OUTSIDE <= tensor < len(graph.tensors) for tensor in (*run.inputs, *run.outputs)):
            raise GraphError(f"{where} uses a tensor that is not there")
        if not OUTSIDE <= run.module < len(graph.modules):
            raise GraphError(f"{where} refers to module {run.module} of {len(graph.modules)}")
        if not OUTSIDE <= run.parent < index:
            raise GraphError(f"{where} lies in composite call {run.parent}, which does not come before it")
        first, last = _span(graph, table, run.parent)
        if not max(first, ends.get(run.parent, 0)) <= run.start <= run.stop <= last:
            raise GraphError(
                f"{where} runs ops {run.start} to {run.stop}, not after the one before it or inside its own"
            )
        ends[run.parent] = run.stop


def _span(graph: Graph, table: Composites, parent: int) -> tuple[int, int]:
    """The ops that a call inside ``parent`` may run."""
    if parent == OUTSIDE:
        return 0, len(graph.ops)
    return table.runs[parent].start, table.runs[parent].stop
