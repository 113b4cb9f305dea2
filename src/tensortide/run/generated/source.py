"""Instructions as the source of a Python function, compiled and shown in tracebacks.

The function takes a list, which it empties, so that what it is given can end inside of it; and returns a tuple. Ops are
globals of its module, called as PyTorch's dispatcher has them: nothing stands between two of them.
"""

from __future__ import annotations

import functools
import itertools
import keyword
import linecache
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

from tensortide.errors import RunError
from tensortide.graph.model import TENSOR, Graph, Value
from tensortide.recorder.torch_compat import OpOverload, set_grad_enabled
from tensortide.run.generated.calls import Code, Hole
from tensortide.run.generated.lowering import Free, Instruction, Run
from tensortide.run.generated.random_state import drawn_on, state_of, with_state
from tensortide.run.torch_compat import BelowAutograd

_numbers = itertools.count()
_LITERALS = (bool, int, str, type(None))
Function: TypeAlias = Callable[[list[Any]], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a program: its function is called ``name``, takes ``inputs`` and returns ``outputs``, those at the
    places ``apart`` as objects of their own; None returns nothing in that place."""

    name: str
    inputs: tuple[str, ...]
    instructions: Sequence[Instruction]
    outputs: tuple[str | None, ...]
    apart: frozenset[int] = frozenset()


@dataclass(slots=True)
class _Writer:
    graph: Graph
    codes: Sequence[Code]
    places: Mapping[int, str]
    lines: list[str] = field(default_factory=list)
    globals: dict[str, Any] = field(default_factory=dict)
    _names: dict[int, str] = field(default_factory=dict)
    _copied: int = 0

    def constant(self, value: Any, prefix: str) -> str:
        """The name of a global that is ``value``."""
        name = self._names.get(id(value))
        if name is None:
            word = re.sub(r"\W", "", prefix)
            name = self._names[id(value)] = f"_{word}_{len(self._names)}"
            self.globals[name] = value
        return name

    def write(self, instruction: Instruction) -> None:
        if isinstance(instruction, Free):
            self.lines.append(f"{' = '.join(instruction.names)} = None")
        elif isinstance(instruction, Run):
            self._run(instruction)
        else:
            raise RunError(f"op {instruction.op} is run by the caller: it cannot stand inside of a program")

    def _run(self, run: Run) -> None:
        code, record = self.codes[run.op], self.graph.ops[run.op]
        inputs = list(run.inputs)
        for slot in run.spared:
            self._copied += 1
            self.lines.append(f"spared_{self._copied} = {self.constant(torch.clone, 'clone')}({inputs[slot]})")
            inputs[slot] = f"spared_{self._copied}"
        call = self._call(code, inputs)
        device = self.graph.storages[self.graph.index.owner[(*record.outputs, *record.inputs)[0]]].device
        if run.state and not run.again:
            state = self.constant(state_of(drawn_on(device)), "state_of")
            self.lines.append(f"{run.state} = {state}()")
        if run.state and run.again:
            within = self.constant(with_state(drawn_on(device)), "with_state")
            self.lines.append(f"with {within}({run.state}):")
            call = f"    {call}"
        target = self._target(run)
        comment = self.places.get(run.op, "")
        self.lines.append(self._assigned(call, target) + (f"  # {comment}" if comment else ""))
        dropped = ["_"] if target is not None and "_" in _words(target) else []
        copies = [name for name in inputs if name.startswith("spared_")]
        if dropped or copies:
            self.lines.append(f"{' = '.join([*dropped, *copies])} = None")

    def _assigned(self, call: str, target: str | None) -> str:
        if target is None:
            return call
        indent = call[: len(call) - len(call.lstrip())]
        return f"{indent}{target} = {call.lstrip()}"

    def _target(self, run: Run) -> str | None:
        """Return what the result is assigned to; None if all of it is dropped."""
        if all(name is None for name in run.outputs):
            return None
        names = iter(run.outputs)
        return self._pattern(self.graph.calls[self.graph.ops[run.op].call].returns, names)

    def _pattern(self, value: Value, names: Any) -> str:
        if value is TENSOR:
            return next(names) or "_"
        if isinstance(value, tuple):
            parts = [self._pattern(item, names) for item in value]
            return f"({', '.join(parts)},)" if value else "_"
        return "_"

    def _call(self, code: Code, inputs: Sequence[str]) -> str:
        function = code.function
        if isinstance(function, OpOverload):
            name = self.constant(function._op, str(function).split(".")[1])
        else:
            name = self.constant(function, getattr(function, "__name__", "function").strip("_"))
        args = [self._value(arg, inputs) for arg in code.args]
        args += [f"{key}={self._value(arg, inputs)}" for key, arg in code.kwargs.items()]
        if any(keyword.iskeyword(key) for key in code.kwargs):  # ``from`` of random numbers
            named = ", ".join(f"{key!r}: {self._value(arg, inputs)}" for key, arg in code.kwargs.items())
            args = [*args[: len(code.args)], f"**{{{named}}}"]
        return f"{name}({', '.join(args)})"

    def _value(self, value: Any, inputs: Sequence[str]) -> str:
        if isinstance(value, Hole):
            return inputs[value.number]
        if isinstance(value, list):
            return f"[{', '.join(self._value(item, inputs) for item in value)}]"
        if type(value) in _LITERALS:
            return repr(value)
        if type(value) is float and value - value == 0:
            return repr(value)
        return self.constant(value, type(value).__name__)


def _words(target: str) -> set[str]:
    return {word.strip("(), ") for word in target.split(",")}


def function_of(
    segment: Segment, graph: Graph, codes: Sequence[Code], places: Mapping[int, str] | None = None
) -> Function:
    """The function of ``segment``; ``codes`` are those of the ops of ``graph``, ``places`` comments for lines by op.

    Its source is ``inspect.getsource(function)``.
    """
    writer = _Writer(graph, codes, places or {})
    for instruction in segment.instructions:
        writer.write(instruction)
    taken = f"({', '.join(segment.inputs)},) = given" if segment.inputs else "pass"
    alias = writer.constant(torch.ops.aten.alias.default, "alias") if segment.apart else ""
    ends = enumerate(segment.outputs)
    result = ", ".join([f"{alias}({name})" if place in segment.apart else name or "None" for place, name in ends])
    body = [taken, "given.clear()", *writer.lines, f"return ({result},)" if segment.outputs else "return ()"]
    source = f"def {segment.name}(given):\n" + "".join(f"    {line}\n" for line in body)
    file = f"<tensortide {segment.name} {next(_numbers)}>"
    namespace: dict[str, Any] = {"__name__": __name__, **writer.globals}
    exec(compile(source, file, "exec"), namespace)
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    return _below_autograd(namespace[segment.name])


def _below_autograd(function: Function) -> Function:
    """``function`` without autograd, its kernels told that gradients are wanted, as in a forward pass: some keep
    workspace for the backward pass only then."""

    @functools.wraps(function)
    def run(given: list[Any]) -> tuple[Any, ...]:
        before = torch.is_grad_enabled()
        set_grad_enabled(True)
        try:
            with BelowAutograd():
                return function(given)
        finally:
            set_grad_enabled(before)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run
