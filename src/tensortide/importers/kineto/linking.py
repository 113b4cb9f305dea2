"""Which tensor an op of a trace was given: a trace has shapes and no identities.

An input is the tensor of its shape, dtype and strides that the order of the ops makes most likely: a gradient is the
one that the backward pass made last, another input of a backward op was saved by the forward op of the same sequence
number, and an input of the forward pass is the one made last that no op has read yet. What nothing made existed before
the step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from tensortide.graph import Handle, Phase
from tensortide.importers.kineto.calls import Given

Key: TypeAlias = tuple[str, tuple[int, ...]]


@dataclass(eq=False)
class Seen:
    """A tensor of the graph: the phase that made it (None: it existed before), whether an op has read or written it,
    and whether its storage existed ``before`` the step."""

    handle: Handle
    made: Phase | None
    strides: tuple[int, ...] | None
    before: bool
    read: bool = False
    written: bool = False


@dataclass
class Linking:
    """The tensors so far, by dtype and shape in the order in which they were made; inputs and outputs of forward ops by
    sequence number."""

    seen: dict[Key, list[Seen]] = field(default_factory=lambda: defaultdict(list))
    inputs: dict[int, list[Seen]] = field(default_factory=lambda: defaultdict(list))
    outputs: dict[int, list[Seen]] = field(default_factory=lambda: defaultdict(list))

    def add(self, handle: Handle, made: Phase | None, strides: tuple[int, ...] | None, *, before: bool) -> Seen:
        """Enter a tensor."""
        found = Seen(handle, made, strides, before)
        self.seen[handle.dtype, handle.shape].append(found)
        return found

    def dtype(self, shape: tuple[int, ...]) -> str:
        """Find the dtype of the tensors of a shape; empty where there are none, or several dtypes."""
        found = {dtype for dtype, known in self.seen if known == shape}
        return found.pop() if len(found) == 1 else ""

    def again(self, given: Given) -> Seen | None:
        """Find what existed before the step and was read already."""
        known = (one for one in self.seen.get((given.dtype, given.shape), ()) if one.made is None)
        return next(known, None)

    def gradient(self, given: Given) -> Seen | None:
        """Find the gradient that was made last and has this shape."""
        known = reversed(self.seen.get((given.dtype, given.shape), ()))
        return next((one for one in known if one.made is Phase.BACKWARD and not one.before), None)

    def find(
        self, given: Given, name: str, phase: Phase, sequence: int | None, taken: list[Seen], *, written: bool
    ) -> Seen | None:
        """Find what an argument ``name`` was, that is none of those ``taken``; None for what existed before."""
        free = [
            one
            for one in reversed(self.seen.get((given.dtype, given.shape), ()))
            if one not in taken and (one.strides is None or given.strides is None or one.strides == given.strides)
        ]
        if phase is Phase.BACKWARD:
            outputs = self.outputs if name in ("output", "result") else self.inputs
            saved = outputs.get(sequence, []) if sequence is not None else []
            order = list(_backward(free, name, saved, first=not taken))
        elif phase is Phase.OPTIMIZER:
            order = list(_optimizer(free, name, written))
        else:
            order = [one for one in free if one.made and not one.read] or [one for one in free if one.made]
        return order[0] if order else None


def _backward(free: list[Seen], name: str, saved: list[Seen], *, first: bool) -> Iterator[Seen]:
    fresh = [one for one in free if one.made is Phase.BACKWARD and not one.read]
    if "grad" in name or (first and name not in ("output", "result")):
        yield from fresh
    yield from (one for one in reversed(saved) if one in free)
    yield from fresh
    yield from (one for one in free if one.made is Phase.BACKWARD)
    yield from free


def _optimizer(free: list[Seen], name: str, written: bool) -> Iterator[Seen]:
    if written and name in ("self", "param", "params"):
        yield from (one for one in free if one.made is Phase.OPTIMIZER and not one.read)
        yield from (one for one in free if one.made is None and not one.written)
    elif "exp_avg" not in name and "momentum" not in name:
        yield from (one for one in free if one.made is Phase.OPTIMIZER and not one.read)
        yield from (one for one in free if one.made is Phase.BACKWARD)
        yield from (one for one in free if one.written)
