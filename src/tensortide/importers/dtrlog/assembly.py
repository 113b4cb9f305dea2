"""The Graph of a log as it comes to be: what is computed, in which storage it lies, and how often it is held."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tensortide.graph.model import TENSOR, Call, Graph, Meta, Op, Phase, Role, Storage, Tensor, Value
from tensortide.plans.remat.schedule import CONSTANT

__all__ = ["CONSTANT", "COPY_ON_WRITE", "WRITTEN", "Assembly", "Unheld"]

COPY_ON_WRITE = "copy_on_write"
"""Tag of in-place ops that are read as ops with new outputs."""
WRITTEN = "mutated"
"""Argument of such ops: the positions of the inputs that the outputs replace."""

_BYTES = "Tensors are counted in bytes: the log has neither dtypes nor shapes."
_COPIES = "In-place ops are read as copies on write: other names of what they write keep the old contents."


class Unheld(Exception):
    """A tensor that nobody holds is released."""


class Assembly:
    """Ops, tensors and storages in the order of the log. Tensors, storages and ops are their indexes."""

    def __init__(self) -> None:
        self.durations: list[int] = []
        self.labels: list[str] = []
        self.names: list[str] = []
        self.aliases: list[int] = []
        self.storage_of: list[int] = []
        self.storage_bytes: list[int] = []
        self._ops: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = []
        self._calls: dict[tuple[object, ...], int] = {}
        self._made: list[Call] = []
        self._tensors: list[Tensor] = []
        self._births: list[int] = []
        self._first_names: list[str] = []
        self._roles: list[Role] = []
        self._held: list[int] = []  # per storage
        self._counts: list[int] = []  # per tensor
        self._last_use: list[int] = []
        self._last_drop: list[int] = []

    def __len__(self) -> int:
        return len(self._ops)

    def new(self, name: str, nbytes: int, role: Role = Role.ACTIVATION) -> int:
        """A tensor in a storage of its own that the next op makes; it is held once."""
        storage = len(self.storage_bytes)
        self.storage_bytes.append(nbytes)
        self._births.append(len(self._ops))
        self._first_names.append(name)
        self._roles.append(role)
        self._held.append(0)
        self._last_use.append(len(self._ops))
        self._last_drop.append(0)
        return self._tensor(name, storage, nbytes, -1)

    def view(self, name: str, nbytes: int, inputs: Sequence[int], alias: int) -> int:
        """A tensor in the storage of one of the ``inputs`` of the next op, which makes it; it is held once."""
        storage = self.storage_of[inputs[alias]]
        return self._tensor(name, storage, min(nbytes, self.storage_bytes[storage]), alias)

    def _tensor(self, name: str, storage: int, nbytes: int, alias: int) -> int:
        self._tensors.append(Tensor(storage, "uint8", (nbytes,), (1,)))
        self.names.append(name)
        self.aliases.append(alias)
        self.storage_of.append(storage)
        self._counts.append(1)
        self._held[storage] += 1
        return len(self._tensors) - 1

    def op(
        self,
        label: str,
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        duration_ns: int,
        mutated: tuple[int, ...] = (),
        tag: str = "",
    ) -> int:
        """The next op. ``mutated`` are positions in ``inputs``; with the tag ``copy_on_write`` the outputs stand for
        them."""
        index = len(self._ops)
        for tensor in inputs:
            self._last_use[self.storage_of[tensor]] = index
        for tensor in outputs:
            self._last_use[self.storage_of[tensor]] = index
        key = (label, len(inputs), len(outputs), mutated, tag)
        call = self._calls.get(key)
        if call is None:
            call = self._calls[key] = len(self._made)
            self._made.append(_call(label, len(inputs), len(outputs), mutated, tag))
        self._ops.append((call, inputs, outputs))
        self.labels.append(label)
        self.durations.append(duration_ns)
        return index

    def hold(self, tensor: int) -> None:
        """``tensor`` is held once more."""
        self._counts[tensor] += 1
        self._held[self.storage_of[tensor]] += 1

    def drop(self, tensor: int) -> None:
        """``tensor`` is held once less; its storage dies with the last hold of a tensor in it. Raises Unheld."""
        if not self._counts[tensor]:
            raise Unheld
        storage = self.storage_of[tensor]
        self._counts[tensor] -= 1
        self._held[storage] -= 1
        if not self._held[storage]:
            self._last_drop[storage] = len(self._ops)

    def is_held(self, tensor: int) -> bool:
        """Return whether the program holds a reference to ``tensor``."""
        return self._counts[tensor] > 0

    def graph(self, workload: str, backward: int | None, copy_on_write: bool) -> Graph:
        """Return the Graph assembled so far. ``backward`` is the first op of the backward pass; None: the first one
        that says so in its name."""
        if backward is None:
            named = (index for index, label in enumerate(self.labels) if "backward" in label)
            backward = next(named, len(self._ops))
        phases = (Phase.FORWARD, Phase.BACKWARD)
        return Graph(
            ops=tuple(
                Op(call, inputs, outputs, phases[index >= backward], label=label)
                for index, ((call, inputs, outputs), label) in enumerate(zip(self._ops, self.labels, strict=True))
            ),
            calls=tuple(self._made),
            tensors=tuple(self._tensors),
            storages=tuple(self._storage(index) for index in range(len(self.storage_bytes))),
            meta=Meta(
                workload=workload,
                framework="dtr log",
                captured_on="file",
                assumptions=(_BYTES, _COPIES) if copy_on_write else (_BYTES,),
            ),
        )

    def _storage(self, index: int) -> Storage:
        death = None if self._held[index] else max(self._last_drop[index], self._last_use[index] + 1)
        name = self._first_names[index]
        return Storage(self.storage_bytes[index], "cuda", self._roles[index], self._births[index], death, name)


def _call(label: str, inputs: int, outputs: int, mutated: Sequence[int], tag: str) -> Call:
    arguments: list[tuple[str, Value]] = [(f"x{i}", TENSOR) for i in range(inputs)]
    copies = tag == COPY_ON_WRITE
    if copies:
        arguments.append((WRITTEN, tuple(mutated)))
    return Call(
        op=f"dtr.{re.sub(r'[^0-9A-Za-z_]', '_', label) or '_'}.default",
        arguments=tuple(arguments),
        positional=inputs,
        mutated=() if copies else tuple(mutated),
        returns=TENSOR if outputs == 1 else (TENSOR,) * outputs,
        tags=(tag,) if tag else (),
    )
