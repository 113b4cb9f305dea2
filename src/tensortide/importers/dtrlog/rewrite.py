"""A log once more from what was read of it, event by event."""

from __future__ import annotations

from tensortide.graph.model import Call
from tensortide.importers.dtrlog.assembly import CONSTANT, COPY_ON_WRITE, WRITTEN
from tensortide.importers.dtrlog.recording import LogRecording
from tensortide.importers.dtrlog.text import Result, Text
from tensortide.plans.remat.recording import Event

__all__ = ["Rewriting"]


class Rewriting:
    """Events one after the other, as lines with the names of the log that was read."""

    def __init__(self, recording: LogRecording, durations_ns: tuple[int, ...]) -> None:
        self.graph = recording.graph
        self.text = Text(recording.graph)
        self._recording = recording
        self._durations = durations_ns
        self._known: set[str] = set()

    def content(self) -> bytes:
        """The whole log."""
        names = self._recording.names
        events = list(zip(self._recording.kinds.tolist(), self._recording.indexes.tolist(), names, strict=True))
        sources = iter(self._recording.sources)
        implied = 0  # releases that the line before stands for
        for (kind, index, name), following in zip(events, [*events[1:], (None, 0, "")], strict=True):
            if kind == Event.COMPUTE:
                implied = self._compute(index)
            elif kind == Event.RELEASE and implied:
                implied -= 1
            elif kind == Event.RELEASE and (following[0] != Event.GET or following[2] != name):
                self.text.release(name)
            elif kind == Event.GET:
                write = self.text.copy_from if name in self._known else self.text.copy
                write(name, next(sources))
                self._known.add(name)
        return self.text.content()

    def _compute(self, index: int) -> int:
        """One op; returns how many releases it stands for."""
        op, names = self.graph.ops[index], self._recording.operands[index]
        call, duration = self.graph.calls[op.call], self._durations[index]
        args, results = names[: len(op.inputs)], names[len(op.inputs) :]
        self.text.at(index)
        if CONSTANT in call.tags:
            self.text.constant(results[0], self._nbytes(op.outputs[0]))
        elif COPY_ON_WRITE in call.tags:
            slots = _written(call)
            self.text.mutate(op.label, args, slots, duration)
            return len(slots)
        elif call.mutated:
            self.text.mutate(op.label, args, call.mutated, duration)
        else:
            aliases = self._recording.aliases
            named = zip(results, op.outputs, strict=True)
            made = [Result(name, self._nbytes(tensor), aliases[tensor]) for name, tensor in named]
            self.text.call(op.label, args, made, duration)
        self._known.update(results)
        return 0

    def _nbytes(self, tensor: int) -> int:
        return self.graph.tensors[tensor].numel


def _written(call: Call) -> tuple[int, ...]:
    slots = dict(call.arguments)[WRITTEN]
    assert isinstance(slots, tuple)
    return tuple(slot for slot in slots if isinstance(slot, int))
