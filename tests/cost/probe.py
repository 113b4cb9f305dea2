"""What the tests of costs share: a step's Count, the cost of one op made by hand, and numbers that count themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

import tensortide
from tensortide.cost import Cost, Count, count
from tensortide.cost.evaluate import OpCost, evaluate
from tensortide.graph import OUTSIDE, TENSOR, Call, Graph, Op, Phase, Role, Storage, Tensor
from tensortide.graph.model import Value
from tensortide.recorder.recorder import Recorder


def capture(target: Callable[..., Any], *, real: bool = False, **hyperparameters: Any) -> Graph:
    return tensortide.capture(target, hyperparameters=hyperparameters, real=real, name="test")


def counted(target: Callable[..., Any], *, real: bool = False, **hyperparameters: Any) -> Count:
    return count(capture(target, real=real, **hyperparameters))


def recorded(function: Callable[..., Any], *arguments: Any) -> Graph:
    """What ``function`` dispatches on real tensors, without the care that capture takes: for many small programs."""
    recorder = Recorder()
    with recorder:
        function(*arguments)
    return recorder.graph()


def cost_of(function: Callable[..., Any], *arguments: Any) -> Cost:
    """The cost of everything that ``function`` dispatches; its inputs are made outside of it."""
    total = count(recorded(function, *arguments)).total
    assert not total.unknown_ops
    return total.cost


def tensor(*shape: int, dtype: str = "float32", storage: int = 0) -> Tensor:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return Tensor(storage, dtype, shape, tuple(strides) if shape else ())


def graph_of(*ops: tuple[Call, list[Tensor], list[Tensor]]) -> Graph:
    """A graph of ops that share no memory, each given with its inputs and outputs."""
    tensors: list[Tensor] = []
    storages: list[Storage] = []
    made: list[Op] = []
    calls: list[Call] = []

    def add(given: Tensor, birth: int | None) -> int:
        nbytes = given.numel * given.itemsize
        storages.append(Storage(nbytes, "cpu", Role.TEMPORARY, birth, None))
        tensors.append(Tensor(len(storages) - 1, given.dtype, given.shape, given.strides, given.offset))
        return len(tensors) - 1

    for index, (call, inputs, outputs) in enumerate(ops):
        calls.append(call)
        read = tuple(add(item, None) for item in inputs)
        written = tuple(add(item, index) for item in outputs)
        made.append(Op(len(calls) - 1, read, written, Phase.FORWARD, OUTSIDE))
    return Graph(tuple(made), tuple(calls), tuple(tensors), tuple(storages))


def product(n: int = 8) -> tuple[Call, list[Tensor], list[Tensor]]:
    """A product of two n by n matrices, for ``graph_of``."""
    call = Call("aten.mm.default", (("self", TENSOR), ("mat2", TENSOR)), 2)
    return call, [tensor(n, n), tensor(n, n)], [tensor(n, n)]


def single(name: str, arguments: dict[str, Any], *outputs: Tensor, returns: Value = TENSOR) -> OpCost:
    """The cost of one call; arguments are tensors (by ``tensor``), numbers or tuples of these."""
    inputs: list[Tensor] = []

    def hole(value: Any) -> Any:
        if isinstance(value, Tensor):
            inputs.append(value)
            return TENSOR
        return tuple(map(hole, value)) if isinstance(value, tuple) else value

    given = tuple((key, hole(value)) for key, value in arguments.items())
    if len(outputs) > 1 and returns is TENSOR:
        returns = (TENSOR,) * len(outputs)
    graph = graph_of((Call(name, given, len(given), returns=returns), inputs, list(outputs)))
    return evaluate(graph[0])


def cost_of_call(name: str, arguments: dict[str, Any], *outputs: Tensor) -> Cost:
    found = single(name, arguments, *outputs)
    assert found.cost is not None, found.note
    return found.cost


class Tally:
    """Operations on numbers done while it is active."""

    def __init__(self) -> None:
        self.flops = 0
        self.special = 0
        self.compared = 0


_active: list[Tally] = []


@contextmanager
def tally() -> Iterator[Tally]:
    _active.append(Tally())
    try:
        yield _active[-1]
    finally:
        _active.pop()


class Number:
    """A number that writes down every operation done with it."""

    def __init__(self, value: float) -> None:
        self.value = value

    def _done(self, value: float, *, special: bool = False, compared: bool = False) -> Number:
        now = _active[-1]
        now.flops += 1
        now.special += special
        now.compared += compared
        return Number(value)

    def __add__(self, other: Number | float) -> Number:
        return self._done(self.value + _value(other))

    def __sub__(self, other: Number | float) -> Number:
        return self._done(self.value - _value(other))

    def __rsub__(self, other: float) -> Number:
        return self._done(other - self.value)

    def __mul__(self, other: Number | float) -> Number:
        return self._done(self.value * _value(other))

    def __truediv__(self, other: Number | float) -> Number:
        return self._done(self.value / _value(other), special=True)

    def larger(self, other: Number) -> Number:
        return self._done(max(self.value, other.value), compared=True)

    def function(self, of: Callable[[float], float]) -> Number:
        return self._done(of(self.value), special=True)

    def selected(self, of: Callable[[float], float]) -> Number:
        """One comparison: a minimum, a maximum, an absolute value, a choice."""
        return self._done(of(self.value), compared=True)


def _value(other: Number | float) -> float:
    return other.value if isinstance(other, Number) else other


def numbers(*shape: int) -> Any:
    """Nested lists of Numbers with random values."""
    values = torch.rand(shape).tolist()

    def wrap(value: Any) -> Any:
        return [wrap(item) for item in value] if isinstance(value, list) else Number(value)

    return wrap(values)


def total(items: list[Number]) -> Number:
    result = items[0]
    for item in items[1:]:
        result = result + item
    return result


def largest(items: list[Number]) -> Number:
    result = items[0]
    for item in items[1:]:
        result = result.larger(item)
    return result


def assert_counted(cost: Cost, done: Tally) -> None:
    """The element work of ``cost`` is what was done."""
    assert (cost.elementwise_flops, cost.transcendentals, cost.comparisons) == (done.flops, done.special, done.compared)
