"""The step of a fit: its Graph, the way to capture it again, and what of it changes can be made to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated

from tensortide.graph.model import Graph, Phase, Role
from tensortide.recorder.changes import Change
from tensortide.recorder.target import Scalar
from tensortide.shown import Show
from tensortide.timing.cards import Card
from tensortide.timing.catalogue import Device
from tensortide.timing.collectives.nodes import LinkRates

Capture = Callable[[Mapping[str, Scalar], Sequence[Change], bool], Graph]
"""Captures the step again: with these settings and changes; the very first step if the flag is true."""

BATCHES = ("batch", "batch_size", "batchsize", "bs", "micro_batch", "micro_batch_size", "per_device_batch_size")
"""Names of the hyperparameter that is the number of samples of a step."""
_CASTS = (
    *("aten._to_copy", "aten.t.", "aten.view", "aten._unsafe_view", "aten.transpose", "aten.detach", "aten.alias"),
    *("aten.clone", "aten.slice", "aten.select", "aten.reshape", "aten.contiguous"),
)


def batch_of(settings: Mapping[str, object]) -> tuple[str, int] | None:
    """The hyperparameter that is the number of samples of a step, and its value."""
    given = ((name, settings.get(name)) for name in BATCHES)
    return next(((name, value) for name, value in given if type(value) is int and value > 0), None)


@dataclass(frozen=True)
class Subject:
    """A step ``graph`` (without loops) of the target ``name`` for ``row``, whose kernels it has.

    ``card`` is what it is to fit into, if not the memory of ``row``; without ``timed`` it is all that is known of the
    device, and nothing has a time. ``again`` captures the step once more (None: ``why_not`` says why it cannot be).
    """

    name: str
    graph: Graph
    row: Device
    card: Card | None = None
    timed: bool = True
    by_default: bool = False
    """True if nobody named ``row``, or a card."""
    again: Capture | None = None
    why_not: str = ""
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    code: Path | None = None
    """The file that has the loop around the step."""
    rates: LinkRates = LinkRates()
    """Rates between several devices, in place of those of the catalogue."""

    def __getstate__(self) -> dict[str, object]:
        """Without ``again``, whose function may have no name by which another process finds it."""
        return {**vars(self), "again": None}

    @property
    def machine(self) -> Annotated[str, Show("Machine")]:
        """The device, as it is called."""
        return self.row.name if self.timed or self.card is None else self.card.name

    @property
    def untried(self) -> bool:
        """True for a captured step of PyTorch that cannot be captured again: what may help it can be said, and not
        tried."""
        return self.again is None and self.graph.meta.captured_on != "file"

    @property
    def timed_device(self) -> Device | None:
        """The device that has the times; None if there are none."""
        return self.row if self.timed else None

    @property
    def limit_bytes(self) -> Annotated[int, Show("Usable")]:
        """The memory that it is to fit into, at least."""
        return (self.row.usable_bytes or 0) if self.card is None else self.card.least_bytes

    @cached_property
    def batch(self) -> tuple[str, int] | None:
        """The hyperparameter that is the number of samples, and its value."""
        return batch_of(self.graph.meta.hyperparameters)

    @cached_property
    def trains(self) -> bool:
        """True if the step has a backward pass."""
        return any(op.phase is Phase.BACKWARD for op in self.graph.ops)

    @cached_property
    def blocks(self) -> tuple[tuple[str, ...], ...]:
        """Paths of repeated modules that have modules of their own: those of the outermost lists, and, where these are
        lists again, those inside."""
        ran = {prefix for path in self._paths for prefix in _prefixes(path)}
        inner = {path.rpartition(".")[0] for path in ran}
        found = []
        for depth in (1, 2):
            some = [path for path in ran if _level(path) == depth and path in inner]
            beside = Counter(path.rpartition(".")[0] for path in some)
            repeated = [path for path in some if beside[path.rpartition(".")[0]] > 1]
            if repeated:
                found.append(tuple(sorted(repeated, key=natural)))
        return tuple(found)

    @cached_property
    def _paths(self) -> set[str]:
        modules = self.graph.modules
        return {modules[op.module].path for op in self.graph.ops if op.module >= 0 and op.phase is Phase.FORWARD}

    @cached_property
    def classifier(self) -> tuple[str, int] | None:
        """The name of the parameter whose product with hidden rows is what the loss takes the softmax of, and the
        bytes of that product; None if there is none."""
        graph = self.graph
        for number, op in enumerate(graph):
            if op.name.startswith("aten._log_softmax.") and op.phase is Phase.FORWARD and op.inputs:
                nbytes = op.inputs[0].nbytes
                weight = self._weight(graph.tensors[graph.ops[number].inputs[0]].storage, number)
                if weight is not None:
                    return weight, nbytes
        return None

    def _weight(self, storage: int, before: int) -> str | None:
        """The parameter that a product writes ``storage`` with, before the op ``before``."""
        for number in range(before - 1, -1, -1):
            op = self.graph.ops[number]
            if all(self.graph.tensors[t].storage != storage for t in op.outputs):
                continue
            inputs = [self.graph.tensors[t].storage for t in op.inputs]
            if any(self.graph.calls[op.call].op.startswith(cast) for cast in _CASTS):
                if storage not in inputs:
                    return self._weight(inputs[0], number)
                continue
            return next((name for each in inputs if (name := self._matrix(each, number)) is not None), None)
        return None

    def _matrix(self, storage: int, before: int) -> str | None:
        """The name of the parameter of two dimensions in ``storage``, or of which it is a cast."""
        graph = self.graph
        if graph.storages[storage].role is Role.PARAMETER:
            named = (each for each in graph.named if graph.tensors[each.tensor].storage == storage)
            return next((each.name for each in named if len(graph.tensors[each.tensor].shape) == 2), None)
        birth = graph.storages[storage].birth
        if birth is None or birth >= before or not graph.calls[graph.ops[birth].call].op.startswith("aten._to_copy"):
            return None
        return self._matrix(graph.tensors[graph.ops[birth].inputs[0]].storage, birth)


def _prefixes(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition(".")[0]


def _level(path: str) -> int:
    """Return how many of the numbers in ``path`` end it, if it ends with one and has no other."""
    found = re.fullmatch(r"(?:\D[^.]*\.)*((?:\d+\.)*\d+)", path)
    return found[1].count(".") + 1 if found else 0


def natural(path: str) -> list[tuple[int, str]]:
    """A key that sorts paths as people count: ``blocks.2`` before ``blocks.10``."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in path.split(".")]
