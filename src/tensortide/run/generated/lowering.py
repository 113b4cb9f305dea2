"""A Plan as straight-line instructions over names: ops in the order of the plan, and names that end where it evicts.

Names belong to tensors, evictions to storages: an eviction ends the names of all views of the storage. Ops that only
make views are not run where the plan has them but where their view is used, from what is resident by then. A storage
that is recomputed gets new names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from tensortide.errors import PlanError
from tensortide.graph.effects import draws_random
from tensortide.graph.model import Graph
from tensortide.plans.events.primitives import homes, primitives
from tensortide.plans.legal import problem_of
from tensortide.plans.model import Compute, Evict, Plan


class Run(NamedTuple):
    """Run ``op`` on the values named ``inputs``, one for each hole of its call, and name its results ``outputs``, None
    where they are dropped. ``again``: it has run before. ``state``: the name of the state of the random generator in
    which it first runs, which is kept then and taken up again by later runs; empty if it runs once. ``spared``: inputs
    of which it gets a copy, as it would update them a second time."""

    op: int
    inputs: tuple[str, ...]
    outputs: tuple[str | None, ...]
    again: bool = False
    state: str = ""
    spared: frozenset[int] = frozenset()


class Free(NamedTuple):
    """Release the values of ``names``."""

    names: tuple[str, ...]


class Break(NamedTuple):
    """The op ``op``, which the caller runs: until then the program has made ``inputs``, and it gets ``outputs``."""

    op: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


Instruction: TypeAlias = Run | Free | Break


@dataclass
class _Names:
    """Names of the tensors that are available, by tensor and by storage."""

    graph: Graph
    prefixes: dict[int, str]
    of_tensor: dict[int, str] = field(default_factory=dict)
    of_storage: dict[int, dict[int, str]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def give(self, tensor: int, op: int) -> str:
        """A new name for ``tensor``, made by ``op``."""
        prefix = self.prefixes.get(op) or self.prefixes.setdefault(op, _word(self.graph[op].name))
        self.counts[prefix] = self.counts.get(prefix, 0) + 1
        return self.set(tensor, f"{prefix}_{self.counts[prefix]}")

    def set(self, tensor: int, name: str) -> str:
        """Give ``tensor`` that name."""
        self.of_tensor[tensor] = name
        self.of_storage.setdefault(self.graph.tensors[tensor].storage, {})[tensor] = name
        return name

    def forget(self, storage: int) -> tuple[str, ...]:
        """End the names of all views of ``storage``; returns them."""
        ended = self.of_storage.pop(storage, {})
        for tensor in ended:
            del self.of_tensor[tensor]
        return tuple(ended.values())


def lowered(
    graph: Graph, plan: Plan, given: Mapping[int, str], breaks: Iterable[int] = (), kept: Sequence[int] = ()
) -> tuple[list[Instruction], list[str]]:
    """The instructions of ``plan``, which executes ``graph``, and the names that ``kept`` tensors have at the end.

    ``given``: names of tensors that exist before the step. ``breaks``: ops that the caller runs. Raises PlanError for a
    plan that moves storages, or that uses what is not there.
    """
    if len(plan.lanes) != 1 or plan.home:
        raise PlanError("a generated program runs plans of one lane that move nothing")
    return _Lowering(graph, plan, given, frozenset(breaks)).run(kept)


def states_kept(instructions: Iterable[Instruction]) -> int:
    """The number of states of random generators that ``instructions`` keep."""
    return sum(isinstance(each, Run) and bool(each.state) and not each.again for each in instructions)


class _Lowering:
    def __init__(self, graph: Graph, plan: Plan, given: Mapping[int, str], breaks: frozenset[int]) -> None:
        self.graph, self.plan, self.steps, self.breaks = graph, plan, plan.lanes[0].steps, breaks
        self.names = _Names(graph, {})
        self.given = frozenset(given)
        self.code: list[Instruction] = []
        self.ran: set[int] = set()
        self.states: dict[int, str] = {}
        self.view = [view.is_view for view in graph]
        self.maker = _makers(graph, self.view, given)
        for tensor, name in given.items():
            self.names.set(tensor, name)
        self.twice = self._twice()

    def _twice(self) -> set[int]:
        """Random ops that run more than once."""
        seen: set[int] = set()
        found: set[int] = set()
        for step in self.steps:
            if isinstance(step, Compute):
                if step.op in seen and draws_random(self.graph.calls[self.graph.ops[step.op].call]):
                    found.add(step.op)
                seen.add(step.op)
        return found

    def run(self, kept: Sequence[int]) -> tuple[list[Instruction], list[str]]:
        stated = problem_of(self.plan, self.graph)
        for step in primitives(stated, self.steps, homes(stated, None)).steps:
            if isinstance(step, Compute):
                if step.op in self.breaks:
                    self._break(step.op)
                elif not self.view[step.op]:
                    self._run(step.op)
                self.ran.add(step.op)
            elif isinstance(step, Evict):
                self._free(step.storage)
            else:
                raise PlanError(f"a generated program runs plans that move nothing, and a step is {step}")
        names = [self._need(tensor) for tensor in kept]
        return self.code, names

    def _free(self, storage: int) -> None:
        names = self.names.forget(storage)
        if names:
            self.code.append(Free(names))

    def _need(self, tensor: int) -> str:
        """The name of ``tensor``; makes the view again from what is resident if it has none."""
        name = self.names.of_tensor.get(tensor)
        if name is not None:
            return name
        maker = self.maker.get(tensor)
        if maker is None:
            raise PlanError(f"the plan uses tensor {tensor} where its storage is not resident")
        self._call(maker, self._inputs(maker), self.graph.ops[maker].outputs)
        return self.names.of_tensor[tensor]

    def _inputs(self, op: int) -> tuple[str, ...]:
        return tuple([self._need(tensor) for tensor in self.graph.ops[op].inputs])

    def _run(self, op: int) -> None:
        inputs = self._inputs(op)
        resident = self.names.of_storage.keys()
        owner = self.graph.index.owner
        fresh = [tensor for tensor in self.graph.ops[op].outputs if owner[tensor] not in resident]
        self._call(op, inputs, fresh)

    def _call(self, op: int, inputs: tuple[str, ...], wanted: Sequence[int]) -> None:
        """Append the run of ``op``; of its outputs only those ``wanted`` that have no name yet get one."""
        record = self.graph.ops[op]
        named: set[int] = set()
        outputs: list[str | None] = []
        for tensor in record.outputs:
            if tensor in wanted and tensor not in self.names.of_tensor and tensor not in named:
                named.add(tensor)
                outputs.append(self.names.give(tensor, op))
            else:
                outputs.append(None)
        again = op in self.ran and not self.view[op]
        state = self.states.setdefault(op, f"state_{len(self.states)}") if op in self.twice else ""
        blind = self.graph.index.blind[op] if again else ()
        owner = self.graph.index.owner
        spared = frozenset(slot for slot, tensor in enumerate(record.inputs) if owner[tensor] in blind)
        self.code.append(Run(op, inputs, tuple(outputs), again, state, spared))

    def _break(self, op: int) -> None:
        """Before it views end whose storage has a name that is no view: they are made again after it."""
        record = self.graph.ops[op]
        inputs = self._inputs(op)
        for tensor in list(self.names.of_tensor):
            if tensor in self.maker and tensor not in self.given:
                storage = self.names.of_storage[self.graph.tensors[tensor].storage]
                if any(other not in self.maker for other in storage):
                    del storage[tensor], self.names.of_tensor[tensor]
        outputs = tuple([self.names.give(tensor, op) for tensor in record.outputs])
        self.code.append(Break(op, inputs, outputs))


def _makers(graph: Graph, views: Sequence[bool], given: Iterable[int]) -> dict[int, int]:
    """For each tensor that only renames memory the op that first makes it."""
    made, found = {*given}, dict[int, int]()
    for number, op in enumerate(graph.ops):
        for tensor in op.outputs:
            if views[number] and tensor not in made:
                found[tensor] = number
            made.add(tensor)
    return found


def _word(name: str) -> str:
    """The name of an op as an identifier: ``aten.mm.default`` is ``mm``."""
    parts = name.split(".")
    word = re.sub(r"\W", "_", parts[1] if len(parts) > 1 else parts[0])
    return word if word.isidentifier() else "value"
