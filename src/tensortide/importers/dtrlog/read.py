"""DTR logs as Recordings: the grammar of the logs, and what it means for names, tensors and events."""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tensortide.errors import LogError
from tensortide.graph.model import TENSOR, Graph, Meta, Op, Phase, Role, Storage, Tensor, Value
from tensortide.graph.model import Call as GraphCall
from tensortide.importers.dtrlog.lines import (
    BACKWARD,
    START,
    Annotate,
    Call,
    Constant,
    Copy,
    CopyFrom,
    Lines,
    Mutate,
    Release,
    opened,
)
from tensortide.plans.remat.schedule import CONSTANT, Event, Recording

_LARGEST = (1 << 63) - 1
_BYTES = "Tensors are counted in bytes: the log has neither dtypes nor shapes."
_COPIES = "In-place ops are read as copies on write: other names of what they write keep the old contents."


def read_recording(path: str | os.PathLike[str], *, copy_on_write: bool = False) -> LogRecording:
    """The step that a DTR log has: its Graph, the duration of each op in nanoseconds, and its events in order.

    The file is plain or compressed with gzip, whatever its name; it is read line by line. What precedes the ``START``
    annotation is skipped, valid or not. Blank lines are skipped. A name stays known after its release.

    A ``MUTATE`` op writes its arguments in place: every name and view of them sees that. With ``copy_on_write`` it has
    a new output for each (as large as the storage of the argument), which takes over the name: other names keep the
    old tensor, as in DTR's own simulator.

    At the end of the log there is a PIN for every name whose tensor is still held, in the order in which the names
    came up.

    Raises:
        LogError: the file cannot be read, is no DTR log, is damaged, or contradicts itself: a name that nothing made,
            a name made twice, a tensor released more often than it is held, a second ``START``.
    """
    with opened(path) as lines:
        log = _read(lines, copy_on_write)
    if not log.durations:
        raise LogError(f"{path}: no op in this log")
    nbytes = [storage.nbytes for storage in log.storages]
    for what, numbers in (("bytes", nbytes), ("nanoseconds", log.durations)):
        if sum(numbers) > _LARGEST:
            raise LogError(f"{path}: {sum(numbers):,} {what} in all, more than 64 bits hold")
    return log.recording(os.fspath(path))


def _read(lines: Lines, copy_on_write: bool) -> _Log:
    log = _Log(lines, copy_on_write)
    try:
        started = log.run()
    except LogError:
        if not lines.skip_to_start():
            raise
        started = True
    if started:
        log = _Log(lines, copy_on_write)
        if log.run():
            raise lines.error("a second START")
    return log


class _Storage(msgspec.Struct):
    """A storage, the op that makes it, the last op that uses it, how often the program holds it, and the op before
    which it was last released."""

    nbytes: int
    name: str
    role: Role
    birth: int
    last_use: int
    held: int = 0
    released: int = 0


class _Log:
    """State of reading: ops, tensors and storages in the order of the log, the tensors behind the names, the events.

    Tensors, storages and ops are their indexes.
    """

    def __init__(self, lines: Lines, copy_on_write: bool) -> None:
        self.lines = lines
        self.storages: list[_Storage] = []
        self.durations: list[int] = []
        self._copy_on_write = copy_on_write
        self._backward: int | None = None
        self._bound: dict[str, int] = {}
        self._calls: dict[tuple[str, int, int, tuple[int, ...], str], int] = {}  # arguments of _recorded_call
        self._ops: list[tuple[int, tuple[int, ...], tuple[int, ...], str]] = []
        self._operands: list[tuple[str, ...]] = []
        self._tensors: list[Tensor] = []
        self._tensor_names: list[str] = []
        self._holds: list[int] = []  # per tensor
        self._aliases: list[int] = []
        self._kinds = array("q")
        self._indexes = array("q")
        self._names: list[str] = []
        self._sources: list[str] = []

    def run(self) -> bool:
        """Reads on; True if it stopped after a START, False at the end of the log. Raises LogError."""
        following = self.lines.next
        while (line := following()) is not None:
            if isinstance(line, Release):
                if line.name in self._bound:
                    self._release(line.name)
            elif isinstance(line, Call):
                self._call(line)
            elif isinstance(line, Copy | CopyFrom):
                self._copy(line)
            elif isinstance(line, Constant):
                self._unknown([line.name])
                tensor = self._new(line.name, self.lines.memory(line.name), Role.INPUT)
                self._bound[line.name] = tensor
                self._op(CONSTANT, (), (tensor,), 0, (line.name,), tag=CONSTANT)
                self._event(Event.PIN, tensor, line.name)
            elif isinstance(line, Mutate):
                self._mutate(line)
            elif not isinstance(line, Annotate):
                raise self.lines.error(f"{line.tag()} belongs after CONSTANT or CALL")
            elif line.annotation == START:
                return True
            elif line.annotation == BACKWARD and self._backward is None:
                self._backward = len(self._ops)
        return False

    def recording(self, path: str) -> LogRecording:
        """Return the recording that was read; what is still held at the end of the log has to be resident."""
        import numpy as np

        for name, tensor in self._bound.items():
            if self._holds[tensor]:
                self._event(Event.PIN, tensor, name)
        return LogRecording(
            graph=self._graph(Path(path).name),
            durations_ns=tuple(self.durations),
            kinds=np.array(self._kinds, np.int64),
            indexes=np.array(self._indexes, np.int64),
            source="the log",
            path=path,
            names=tuple(self._names),
            sources=tuple(self._sources),
            operands=tuple(self._operands),
            aliases=tuple(self._aliases),
        )

    def _graph(self, workload: str) -> Graph:
        """Without an annotation, the backward pass starts with the first op that says so in its name."""
        backward, phases = self._backward, (Phase.FORWARD, Phase.BACKWARD)
        if backward is None:
            named = (index for index, (*_, label) in enumerate(self._ops) if "backward" in label)
            backward = next(named, len(self._ops))
        return Graph(
            ops=tuple(
                Op(call, inputs, outputs, phases[index >= backward], label=label)
                for index, (call, inputs, outputs, label) in enumerate(self._ops)
            ),
            calls=tuple(_recorded_call(*key) for key in self._calls),
            tensors=tuple(self._tensors),
            storages=tuple(
                Storage(s.nbytes, "cuda", s.role, s.birth, None if s.held else max(s.released, s.last_use + 1), s.name)
                for s in self.storages
            ),
            meta=Meta(
                workload=workload,
                framework="dtr log",
                captured_on="file",
                assumptions=(_BYTES, _COPIES) if self._copy_on_write else (_BYTES,),
            ),
        )

    # -- instructions -------------------------------------------------------------------------------

    def _call(self, line: Call) -> None:
        inputs = tuple([self._tensor(name) for name in line.args])
        self._unknown(line.result)
        outputs = []
        for name in line.result:
            nbytes, alias = self.lines.memory(name), self.lines.alias(name, len(inputs))
            self._bound[name] = self._new(name, nbytes) if alias < 0 else self._view(name, nbytes, inputs, alias)
            outputs.append(self._bound[name])
        tag = "view" if outputs and all(self._aliases[tensor] >= 0 for tensor in outputs) else ""
        self._op(line.name, inputs, tuple(outputs), line.time, (*line.args, *line.result), tag=tag)

    def _mutate(self, line: Mutate) -> None:
        inputs = tuple([self._tensor(name) for name in line.args])
        mutated, operands = tuple(line.mutate), tuple(line.args)
        if mutated and max(mutated) >= len(inputs):
            raise self.lines.error(f"ARGS[{max(mutated)}] is to be written, and there are {len(inputs)} ARGS")
        if len(set(mutated)) < len(mutated):
            raise self.lines.error("an index is twice in MUTATE")
        if not (self._copy_on_write and mutated):
            self._op(line.name, inputs, (), line.time, operands, mutated)
            return
        written = [inputs[slot] for slot in mutated]
        copies = [self._new(f"{self._tensor_names[tensor]}$", self._storage(tensor).nbytes) for tensor in written]
        self._op(line.name, inputs, tuple(copies), line.time, operands, mutated, COPY_ON_WRITE)
        for slot, tensor in zip(mutated, copies, strict=True):
            self._release(line.args[slot])
            self._bound[line.args[slot]] = tensor

    def _copy(self, line: Copy | CopyFrom) -> None:
        tensor = self._tensor(line.src)
        if isinstance(line, Copy):
            self._unknown([line.dst])
        else:
            self._tensor(line.dst)
            self._release(line.dst)
        self._bound[line.dst] = tensor
        self._holds[tensor] += 1
        self._storage(tensor).held += 1
        self._event(Event.GET, tensor, line.dst)
        self._sources.append(line.src)

    # -- their parts --------------------------------------------------------------------------------

    def _tensor(self, name: str) -> int:
        tensor = self._bound.get(name)
        if tensor is None:
            raise self.lines.error(f"nothing has made {name!r}")
        return tensor

    def _unknown(self, names: list[str]) -> None:
        if not self._bound.keys().isdisjoint(names) or len(set(names)) < len(names):
            twice = next(name for name in names if name in self._bound or names.count(name) > 1)
            raise self.lines.error(f"{twice!r} is made twice")

    def _storage(self, tensor: int) -> _Storage:
        return self.storages[self._tensors[tensor].storage]

    def _new(self, name: str, nbytes: int, role: Role = Role.ACTIVATION) -> int:
        """A tensor in a storage of its own that the next op makes; it is held once."""
        self.storages.append(_Storage(nbytes, name, role, len(self._ops), len(self._ops)))
        return self._held(name, len(self.storages) - 1, nbytes, -1)

    def _view(self, name: str, nbytes: int, inputs: Sequence[int], alias: int) -> int:
        """A tensor in the storage of one of the ``inputs`` of the next op, which makes it; it is held once."""
        storage = self._tensors[inputs[alias]].storage
        return self._held(name, storage, min(nbytes, self.storages[storage].nbytes), alias)

    def _held(self, name: str, storage: int, nbytes: int, alias: int) -> int:
        self._tensors.append(Tensor(storage, "uint8", (nbytes,), (1,)))
        self._tensor_names.append(name)
        self._aliases.append(alias)
        self._holds.append(1)
        self.storages[storage].held += 1
        return len(self._tensors) - 1

    def _op(
        self,
        label: str,
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        duration_ns: int,
        operands: tuple[str, ...],
        mutated: tuple[int, ...] = (),
        tag: str = "",
    ) -> None:
        """The next op. ``mutated`` are positions in ``inputs``; with the tag ``copy_on_write`` the outputs stand for
        them."""
        index, tensors, storages = len(self._ops), self._tensors, self.storages
        for tensor in inputs + outputs:
            storages[tensors[tensor].storage].last_use = index
        call = self._calls.setdefault((label, len(inputs), len(outputs), mutated, tag), len(self._calls))
        self._ops.append((call, inputs, outputs, label))
        self.durations.append(duration_ns)
        self._operands.append(operands)
        self._event(Event.COMPUTE, index, "")

    def _release(self, name: str) -> None:
        """A tensor is held once less; its storage dies with the last hold of a tensor in it."""
        tensor = self._bound[name]
        if not self._holds[tensor]:
            raise self.lines.error(f"{name!r} is released more often than it is held")
        storage = self._storage(tensor)
        self._holds[tensor] -= 1
        storage.held -= 1
        if not storage.held:
            storage.released = len(self._ops)
        self._event(Event.RELEASE, tensor, name)

    def _event(self, kind: Event, index: int, name: str) -> None:
        self._kinds.append(kind)
        self._indexes.append(index)
        self._names.append(name)


def _recorded_call(label: str, inputs: int, outputs: int, mutated: tuple[int, ...], tag: str) -> GraphCall:
    arguments: list[tuple[str, Value]] = [(f"x{i}", TENSOR) for i in range(inputs)]
    copies = tag == COPY_ON_WRITE
    if copies:
        arguments.append((WRITTEN, mutated))
    return GraphCall(
        op=f"dtr.{re.sub(r'[^0-9A-Za-z_]', '_', label) or '_'}.default",
        arguments=tuple(arguments),
        positional=inputs,
        mutated=() if copies else mutated,
        returns=TENSOR if outputs == 1 else (TENSOR,) * outputs,
        tags=(tag,) if tag else (),
    )


# --- the recording -------------------------------------------------------------------------------------

COPY_ON_WRITE = "copy_on_write"
"""Tag of in-place ops that are read as ops with new outputs."""
WRITTEN = "mutated"
"""Argument of such ops: the positions of the inputs that the outputs replace."""


@dataclass(frozen=True, slots=True, eq=False)
class LogRecording(Recording):
    """A Recording with the names in its log, which say what re-binds what when it is written again.

    ``names`` has for every event the name that it is about (for COMPUTE nothing), ``sources`` for every GET the name
    that is copied, ``operands`` for every op the names of its inputs, followed by those of its outputs (for an in-place
    op of its inputs only), ``aliases`` for every tensor which input of its op it lies in (-1: none).
    """

    names: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    operands: tuple[tuple[str, ...], ...] = ()
    aliases: tuple[int, ...] = ()
