"""The lines of a log that is being written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from tensortide.graph.model import Graph, Phase, Value
from tensortide.importers.dtrlog.lines import BACKWARD, START

__all__ = ["Result", "Text"]


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
