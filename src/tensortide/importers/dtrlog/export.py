"""Any Graph as a log: what has names there, which op makes or writes what, and when references are dropped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from tensortide.graph.effects import blind_slots
from tensortide.graph.model import Graph, Phase, Value
from tensortide.importers.dtrlog.lines import BACKWARD, START
from tensortide.plans.remat.schedule import CONSTANT


class Result(NamedTuple):
    """A result of a call: bytes, and the argument in whose storage it lies (-1: it has its own)."""

    name: str
    nbytes: int
    alias: int = -1


class Text:
    """A log under construction. Durations are in nanoseconds."""

    def __init__(self, graph: Graph) -> None:
        phases = (index for index, op in enumerate(graph.ops) if op.phase is Phase.BACKWARD)
        self._backward = next(phases, -1)
        self._misleading = False
        self._lines: list[bytes] = []
        self.add("ANNOTATE", ANNOTATION=START)

    def content(self) -> bytes:
        """The whole log."""
        if self._backward < 0 and self._misleading:  # without the annotation, names decide where the backward starts
            self.add("ANNOTATE", ANNOTATION=BACKWARD)
        return b"".join(self._lines)

    def at(self, op: int) -> None:
        """Begin the lines of op ``op`` of the graph."""
        if op == self._backward:
            self.add("ANNOTATE", ANNOTATION=BACKWARD)

    def constant(self, made: Result) -> None:
        """Add a tensor that cannot be recomputed."""
        self.add("CONSTANT", NAME=made.name)
        self.add("MEMORY", NAME=made.name, MEMORY=str(int(made.nbytes)))

    def call(self, op: str, args: Sequence[str], results: Sequence[Result], duration_ns: int) -> None:
        """An op with new tensors."""
        self._misleading |= "backward" in op
        names = [result.name for result in results]
        self.add("CALL", NAME=op, ARGS=args, RESULT=names, TIME=str(int(duration_ns)))
        for result in results:
            self.add("MEMORY", NAME=result.name, MEMORY=str(int(result.nbytes)))
            self.add("ALIAS", NAME=result.name, ALIAS=str(result.alias))

    def mutate(self, op: str, args: Sequence[str], mutated: Sequence[Value], duration_ns: int) -> None:
        """An op that writes the arguments at the positions ``mutated``."""
        self._misleading |= "backward" in op
        self.add("MUTATE", NAME=op, ARGS=args, MUTATE=mutated, TIME=str(int(duration_ns)))

    def add(self, instruction: str, **fields: object) -> None:
        """Add a line."""
        self._lines.append(msgspec.json.encode({"INSTRUCTION": instruction, **fields}) + b"\n")


class Exporting:
    """Ops of a graph without loops, one after the other. Every storage has the names of the tensors in it."""

    def __init__(self, graph: Graph, durations_ns: Sequence[int]) -> None:
        self.graph = graph
        self.text = Text(graph)
        self._durations = durations_ns
        self._taken: dict[str, int] = {}
        self._name: dict[int, str] = {}  # of a tensor: the last one
        self._names: dict[int, list[str]] = {}  # of a storage: all

    def content(self) -> bytes:
        """The whole log."""
        for index, storage in enumerate(self.graph.storages):
            if storage.birth is None and storage.death != 0:
                self.text.constant(self._new(index))
        for index in range(len(self.graph)):
            self._release(index)
            self.text.at(index)
            self._op(index)
        self._release(len(self.graph))
        return self.text.content()

    def _release(self, op: int) -> None:
        for storage in self.graph.index.released[op]:
            for name in self._names.get(storage, ()):
                self.text.add("RELEASE", NAME=name)

    def _op(self, index: int) -> None:
        op = self.graph.ops[index]
        call, duration = self.graph.calls[op.call], self._durations[index]
        if CONSTANT in call.tags:
            for storage in self.graph.index.allocated[index]:
                self.text.constant(self._new(storage))
            return
        name = op.label if call.op.startswith("dtr.") else call.op
        args = [self._named(tensor) for tensor in op.inputs]
        written = sorted(set(call.mutated) - blind_slots(call))
        inputs = [self.graph.tensors[tensor].storage for tensor in op.inputs]
        operands = list(args)
        results = self._results(index, operands, inputs, bool(written))
        if results or not written:
            self.text.call(name, operands, results, duration)
            name, duration = f"{name}.write", 0
        if written:
            self.text.mutate(name, args, written, duration)

    def _results(self, index: int, operands: list[str], storages: list[int], writes: bool) -> list[Result]:
        """Return the results of the op. An argument that it returns after writing it keeps its name. An output
        elsewhere is a view of that; it becomes one more of ``operands``, which lie in ``storages``."""
        results: list[Result] = []
        fresh = dict.fromkeys(self.graph.index.allocated[index])
        for tensor in self.graph.ops[index].outputs:
            view = self.graph.tensors[tensor]
            storage = view.storage
            if storage in fresh:
                if storage not in self._names:
                    results.append(self._new(storage))
                self._name[tensor] = self._names[storage][0]
            elif writes and storage in storages:
                self._name[tensor] = operands[storages.index(storage)]
            else:
                if storage not in storages:
                    operands.append(self._names[storage][0])
                    storages.append(storage)
                self._name[tensor] = self._unique(f"t{tensor}")
                self._names[storage].append(self._name[tensor])
                results.append(Result(self._name[tensor], view.region_bytes, storages.index(storage)))
        kept = [storage for storage in fresh if storage not in self._names]
        results.extend(map(self._new, kept))
        return results

    def _new(self, storage: int) -> Result:
        made = self.graph.storages[storage]
        name = self._unique(made.name or f"s{storage}")
        self._names[storage] = [name]
        return Result(name, made.nbytes)

    def _named(self, tensor: int) -> str:
        return self._name.get(tensor) or self._names[self.graph.tensors[tensor].storage][0]

    def _unique(self, name: str) -> str:
        """``name``, with a number if something else has it."""
        wanted = name
        while name in self._taken:
            self._taken[wanted] += 1
            name = f"{wanted}.{self._taken[wanted]}"
        self._taken[name] = 1
        return name
