"""DTR logs as Recordings: the grammar of the logs, and what it means for names, tensors and events."""

from __future__ import annotations

import os
from array import array
from pathlib import Path

from tensortide.errors import LogError
from tensortide.graph.model import Role
from tensortide.importers.dtrlog.assembly import CONSTANT, COPY_ON_WRITE, Assembly, Unheld
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
from tensortide.importers.dtrlog.recording import LogRecording
from tensortide.plans.remat.recording import Event

__all__ = ["read_recording"]

_LARGEST = (1 << 63) - 1


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
    if not len(log.made):
        raise LogError(f"{path}: no op in this log")
    log.end()
    for what, numbers in (("bytes", log.made.storage_bytes), ("nanoseconds", log.made.durations)):
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


class _Log:
    """State of reading: the tensors behind the names, and the events so far."""

    def __init__(self, lines: Lines, copy_on_write: bool) -> None:
        self.lines = lines
        self.made = Assembly()
        self._copy_on_write = copy_on_write
        self._bound: dict[str, int] = {}
        self._backward: int | None = None
        self._kinds = array("q")
        self._indexes = array("q")
        self._names: list[str] = []
        self._sources: list[str] = []
        self._operands: list[tuple[str, ...]] = []

    def run(self) -> bool:
        """Reads on; True if it stopped after a START, False at the end of the log. Raises LogError."""
        following = self.lines.next
        while (line := following()) is not None:
            if isinstance(line, Release):
                if line.name in self._bound:
                    self._release(line.name)
            elif isinstance(line, Call):
                self._call(line)
            elif isinstance(line, Copy):
                self._copy(line)
            elif isinstance(line, Constant):
                self._constant(line.name)
            elif isinstance(line, Mutate):
                self._mutate(line)
            elif isinstance(line, CopyFrom):
                self._copy_from(line)
            elif not isinstance(line, Annotate):
                raise self.lines.error(f"{line.tag()} belongs after CONSTANT or CALL")
            elif line.annotation == START:
                return True
            elif line.annotation == BACKWARD and self._backward is None:
                self._backward = len(self.made)
        return False

    def end(self) -> None:
        """The end of the log: what is still held has to be there."""
        for name, tensor in self._bound.items():
            if self.made.is_held(tensor):
                self._event(Event.PIN, tensor, name)

    def recording(self, path: str) -> LogRecording:
        """Return the recording that was read."""
        import numpy as np

        return LogRecording(
            graph=self.made.graph(Path(path).name, self._backward, self._copy_on_write),
            durations_ns=tuple(self.made.durations),
            kinds=np.array(self._kinds, np.int64),
            indexes=np.array(self._indexes, np.int64),
            source="the log",
            path=path,
            names=tuple(self._names),
            sources=tuple(self._sources),
            operands=tuple(self._operands),
            aliases=tuple(self.made.aliases),
        )

    # -- instructions -------------------------------------------------------------------------------

    def _constant(self, name: str) -> None:
        self._unknown([name])
        tensor = self.made.new(name, self.lines.memory(name), Role.INPUT)
        self._bound[name] = tensor
        self._computed(self.made.op(CONSTANT, (), (tensor,), 0, tag=CONSTANT), (name,))
        self._event(Event.PIN, tensor, name)

    def _call(self, line: Call) -> None:
        inputs = tuple([self._tensor(name) for name in line.args])
        self._unknown(line.result)
        lines, made = self.lines, self.made
        outputs = []
        views = 0
        for name in line.result:
            nbytes, alias = lines.memory(name), lines.alias(name, len(inputs))
            if alias < 0:
                tensor = made.new(name, nbytes)
            else:
                tensor = made.view(name, nbytes, inputs, alias)
                views += 1
            self._bound[name] = tensor
            outputs.append(tensor)
        tag = "view" if 0 < views == len(outputs) else ""
        self._computed(made.op(line.name, inputs, tuple(outputs), line.time, tag=tag), (*line.args, *line.result))

    def _mutate(self, line: Mutate) -> None:
        inputs = tuple([self._tensor(name) for name in line.args])
        mutated, made = tuple(line.mutate), self.made
        if mutated and max(mutated) >= len(inputs):
            raise self.lines.error(f"ARGS[{max(mutated)}] is to be written, and there are {len(inputs)} ARGS")
        if len(set(mutated)) < len(mutated):
            raise self.lines.error("an index is twice in MUTATE")
        operands = tuple(line.args)
        if not (self._copy_on_write and mutated):
            self._computed(made.op(line.name, inputs, (), line.time, mutated), operands)
            return
        sizes = [made.storage_bytes[made.storage_of[inputs[slot]]] for slot in mutated]
        copies = [made.new(f"{made.names[inputs[slot]]}$", size) for slot, size in zip(mutated, sizes, strict=True)]
        self._computed(made.op(line.name, inputs, tuple(copies), line.time, mutated, COPY_ON_WRITE), operands)
        for slot, tensor in zip(mutated, copies, strict=True):
            self._release(line.args[slot])
            self._bound[line.args[slot]] = tensor

    def _copy(self, line: Copy) -> None:
        tensor = self._tensor(line.src)
        self._unknown([line.dst])
        self._bound[line.dst] = tensor
        self._get(tensor, line)

    def _copy_from(self, line: CopyFrom) -> None:
        tensor = self._tensor(line.src)
        self._tensor(line.dst)
        self._release(line.dst)
        self._bound[line.dst] = tensor
        self._get(tensor, line)

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

    def _computed(self, op: int, operands: tuple[str, ...]) -> None:
        self._event(Event.COMPUTE, op, "")
        self._operands.append(operands)

    def _get(self, tensor: int, line: Copy | CopyFrom) -> None:
        self.made.hold(tensor)
        self._event(Event.GET, tensor, line.dst)
        self._sources.append(line.src)

    def _release(self, name: str) -> None:
        tensor = self._bound[name]
        try:
            self.made.drop(tensor)
        except Unheld:
            raise self.lines.error(f"{name!r} is released more often than it is held") from None
        self._event(Event.RELEASE, tensor, name)

    def _event(self, kind: Event, index: int, name: str) -> None:
        self._kinds.append(kind)
        self._indexes.append(index)
        self._names.append(name)
