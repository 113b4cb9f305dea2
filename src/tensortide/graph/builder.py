"""A Graph built op by op, by hand or by an importer.

>>> b = GraphBuilder("mlp")
>>> x, w = b.input("x", (8, 784)), b.parameter("fc.weight", (784, 10))
>>> with b.module("fc", "Linear"):
...     y = b.op("aten.mm.default", x, w, out=(8, 10))
>>> b.output(y)
>>> b.build()
<Graph 'mlp': 1 ops, 3 storages>
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from tensortide.errors import GraphError
from tensortide.graph.model import (
    DTYPE_BYTES,
    OUTSIDE,
    TENSOR,
    Branch,
    Call,
    Graph,
    Loop,
    Meta,
    Module,
    Named,
    Op,
    Phase,
    Role,
    Source,
    Storage,
    Tensor,
    Value,
)
from tensortide.graph.validate import validate

Shape: TypeAlias = Sequence[int]


@dataclass(frozen=True, slots=True)
class Handle:
    """A tensor of the graph under construction: its index there, its shape and dtype."""

    index: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Out:
    """An output of an op. ``view_of``: it lies in the storage of that tensor, with these ``strides`` and ``offset``
    (in elements); otherwise it has a storage of its own, of its dense size, with ``role``."""

    shape: Shape
    dtype: str = ""
    view_of: Handle | None = None
    strides: Shape | None = None
    offset: int = 0
    role: Role = Role.TEMPORARY
    name: str = ""


@dataclass(slots=True)
class _Block:
    nbytes: int
    device: str
    role: Role
    birth: int | None
    name: str
    last: int


class GraphBuilder:
    """Builds a Graph: values first, then ops in the order in which they run, then ``build``.

    Storages live from the op that allocates them to their last use; those of outputs, parameters, buffers, optimizer
    state and inputs stay. What the forward pass allocates and another phase reads becomes an activation. Sizes may
    carry expressions (``tensortide.expr``).
    """

    def __init__(self, workload: str = "", *, framework: str = "", device: str = "cpu") -> None:
        self.meta = Meta(workload=workload, framework=framework, captured_on="file")
        self.device = device
        self._ops: list[Op] = []
        self._calls: dict[tuple[str, Call], int] = {}
        self._tensors: list[Tensor] = []
        self._blocks: list[_Block] = []
        self._modules: dict[Module, int] = {}
        self._sources: dict[Source, int] = {}
        self._branches: list[Branch] = []
        self._loops: list[Loop] = []
        self._ends: list[int] = []
        self._named: list[Named] = []
        self._outputs: set[int] = set()
        self._conditionals = itertools.count()
        self._phase, self._module, self._source, self._branch, self._loop = (
            Phase.FORWARD,
            OUTSIDE,
            OUTSIDE,
            OUTSIDE,
            OUTSIDE,
        )
        self._recompute = False

    # --- values that exist before the step -----------------------------------------------------------

    def value(
        self,
        name: str,
        shape: Shape,
        dtype: str = "float32",
        *,
        role: Role = Role.INPUT,
        trainable: bool = False,
        nbytes: int | None = None,
    ) -> Handle:
        """Add a tensor that exists before the step and after it. It is named in the Graph if its role is the model's
        or the optimizer's. ``nbytes``: it is stored in so many bytes, packed or sparse. Raises GraphError for an
        unknown dtype."""
        handle = self._fresh(Out(shape, dtype, role=role, name=name), None)
        if nbytes is not None:
            self._blocks[-1].nbytes = nbytes
        if role is not Role.INPUT:
            self._named.append(Named(name, role, handle.index, trainable))
        return handle

    def input(self, name: str, shape: Shape, dtype: str = "float32") -> Handle:
        """Add an input of the step."""
        return self.value(name, shape, dtype)

    def parameter(self, name: str, shape: Shape, dtype: str = "float32", *, trainable: bool = True) -> Handle:
        """Add a parameter of the model."""
        return self.value(name, shape, dtype, role=Role.PARAMETER, trainable=trainable)

    def alias(self, name: str, of: Handle) -> None:
        """Give a parameter, buffer or optimizer state a further name: tied weights."""
        named = next((entry for entry in self._named if entry.tensor == of.index), None)
        if named is None:
            raise GraphError(f"alias {name!r}: the tensor it stands for has no name")
        self._named.append(Named(name, named.role, of.index, named.trainable))

    # --- ops ------------------------------------------------------------------------------------------

    def op(
        self,
        name: str,
        *inputs: Handle,
        out: Shape | Out,
        dtype: str = "",
        arguments: Mapping[str, Value] | None = None,
        names: Sequence[str] = (),
        mutates: Sequence[Handle] = (),
        tags: Sequence[str] = (),
        label: str = "",
    ) -> Handle:
        """Append an op with one output and return that; the parameters are those of ``ops``.

        ``out`` is its shape or an Out; the dtype is by default that of the first input.
        """
        outs = (out if isinstance(out, Out) else Out(out, dtype),)
        return self.ops(
            name, *inputs, outs=outs, arguments=arguments, names=names, mutates=mutates, tags=tags, label=label
        )[0]

    def ops(
        self,
        name: str,
        *inputs: Handle,
        outs: Sequence[Out] = (),
        arguments: Mapping[str, Value] | None = None,
        names: Sequence[str] = (),
        mutates: Sequence[Handle] = (),
        tags: Sequence[str] = (),
        label: str = "",
    ) -> tuple[Handle, ...]:
        """Append an op ``namespace.name.overload`` and return its outputs.

        ``names`` are the argument names of ``inputs``, by default ``x0, x1, ...``; ``arguments`` are its others.
        ``mutates`` are the inputs it writes in place, ``label`` is its own name in its source. A rule of the cost
        table prices it by these names. Raises GraphError for an unknown dtype, a negative dimension, a mutated tensor
        that is no input, or a number of names that is not that of the inputs.
        """
        if names and len(names) != len(inputs):
            raise GraphError(f"{name}: {len(inputs)} inputs and {len(names)} names for them")
        given = tuple((key, TENSOR) for key in (names or [f"x{i}" for i in range(len(inputs))]))
        places = [i for i, handle in enumerate(inputs) if any(handle.index == m.index for m in mutates)]
        if len({inputs[i].index for i in places}) != len({m.index for m in mutates}):
            raise GraphError(f"{name}: it mutates a tensor that is not among its inputs")
        returns: Value = TENSOR if len(outs) == 1 else (TENSOR,) * len(outs) if outs else None
        call = Call(name, (*given, *(arguments or {}).items()), len(given), tuple(places), returns, tuple(tags))
        at = len(self._ops)
        for handle in inputs:
            self._use(handle, at)
        default = inputs[0].dtype if inputs else "float32"
        made = tuple(self._made(name, out, out.dtype or default, at) for out in outs)
        self._ops.append(
            Op(
                self._calls.setdefault((repr(call), call), len(self._calls)),
                tuple(handle.index for handle in inputs),
                tuple(handle.index for handle in made),
                self._phase,
                self._module,
                self._source,
                self._recompute,
                self._branch,
                self._loop,
                label,
            )
        )
        return made

    def output(self, *handles: Handle) -> None:
        """Declare outputs of the step: they outlive it."""
        self._outputs |= {self._tensors[handle.index].storage for handle in handles}

    # --- where the ops that follow are -----------------------------------------------------------------

    @contextmanager
    def module(self, path: str, kind: str = "") -> Iterator[None]:
        """The ops in this block belong to the module of dotted ``path``."""
        before, self._module = self._module, self._modules.setdefault(Module(path, kind), len(self._modules))
        try:
            yield
        finally:
            self._module = before

    @contextmanager
    def phase(self, phase: Phase, *, recompute: bool = False) -> Iterator[None]:
        """The ops in this block run in ``phase``; ``recompute``: they repeat work of the forward pass."""
        before = self._phase, self._recompute
        self._phase, self._recompute = phase, recompute
        try:
            yield
        finally:
            self._phase, self._recompute = before

    @contextmanager
    def source(self, file: str, line: int, function: str = "", code: str = "") -> Iterator[None]:
        """The ops in this block come from this line of the user's code."""
        source = Source(file, line, function, code)
        before, self._source = self._source, self._sources.setdefault(source, len(self._sources))
        try:
            yield
        finally:
            self._source = before

    @contextmanager
    def loop(
        self, name: str, trips: int, *, assumed: bool = False, gradient_of: int = OUTSIDE
    ) -> Iterator[Callable[[Handle, Handle], None]]:
        """The ops in this block are the body of a loop that runs ``trips`` times; ``assumed``: nobody knows how often.
        ``gradient_of`` is the number of the loop whose iterations it retraces.

        Yields a function ``carry(reads, next)``: the body reads ``reads`` as an iteration starts, and ``next`` takes
        its place in the following one.
        """
        index, start = len(self._loops), len(self._ops)
        self._loops.append(Loop(name, self._loop, trips, gradient_of, assumed=assumed))
        carried: list[tuple[int, int]] = []
        before, self._loop = self._loop, index
        try:
            yield lambda reads, following: carried.append((reads.index, following.index))
        finally:
            self._loop = before
        self._loops[index] = Loop(name, self._loop, trips, gradient_of, tuple(carried), assumed)
        self._keep_through(start, carried)

    def conditional(self) -> Callable[[int], AbstractContextManager[None]]:
        """Start a conditional whose predicate is unknown: ``with arm(0): ...``, ``with arm(1): ...``."""
        number = next(self._conditionals)

        @contextmanager
        def arm(which: int) -> Iterator[None]:
            before, self._branch = self._branch, len(self._branches)
            self._branches.append(Branch(number, which, before))
            try:
                yield
            finally:
                self._branch = before

        return arm

    # --- the Graph ------------------------------------------------------------------------------------

    def build(self) -> Graph:
        """Return the Graph. Raises GraphError for one that is not valid."""
        saved = self._saved()
        count = len(self._ops)
        storages = []
        for index, block in enumerate(self._blocks):
            role = block.role
            death: int | None = min(block.last + 1, count)
            if (
                block.birth is None
                or index in self._outputs
                or role in (Role.PARAMETER, Role.BUFFER, Role.OPTIMIZER_STATE)
            ):
                death = None
            if role is Role.TEMPORARY:
                role = Role.OUTPUT if index in self._outputs else Role.ACTIVATION if index in saved else role
            storages.append(
                Storage(
                    block.nbytes,
                    block.device,
                    role,
                    block.birth,
                    death,
                    block.name,
                )
            )
        graph = Graph(
            tuple(self._ops),
            tuple(call for _, call in self._calls),
            tuple(self._tensors),
            tuple(storages),
            tuple(self._modules),
            tuple(self._sources),
            tuple(self._branches),
            tuple(self._named),
            self.meta,
            tuple(self._loops),
        )
        validate(graph)
        return graph

    def _saved(self) -> set[int]:
        """Storages that the forward pass allocates and a later phase reads."""
        late = (op for op in self._ops if op.phase is not Phase.FORWARD)
        read = {self._tensors[i].storage for op in late for i in op.inputs}
        born = {i: block.birth for i, block in enumerate(self._blocks) if block.birth is not None}
        return {i for i in read if i in born and self._ops[born[i]].phase is Phase.FORWARD}

    def _keep_through(self, start: int, carried: Sequence[tuple[int, int]]) -> None:
        """What the body of a loop reads from outside, and what it carries, stays until its last op."""
        end = len(self._ops) - 1
        inside = {i for op in self._ops[start:] for i in op.inputs} | {i for pair in carried for i in pair}
        for tensor in inside:
            block = self._blocks[self._tensors[tensor].storage]
            if block.birth is None or block.birth < start or any(tensor in pair for pair in carried):
                block.last = max(block.last, end)

    def _use(self, handle: Handle, at: int) -> None:
        block = self._blocks[self._tensors[handle.index].storage]
        block.last = max(block.last, at)

    def _made(self, name: str, out: Out, dtype: str, at: int) -> Handle:
        if any(size < 0 for size in out.shape):
            raise GraphError(f"{name}: an output of shape {tuple(out.shape)}")
        if out.view_of is None:
            return self._fresh(Out(out.shape, dtype, role=out.role, name=out.name, strides=out.strides), at)
        self._use(out.view_of, at)
        return self._add(self._tensors[out.view_of.index].storage, out, dtype)

    def _fresh(self, out: Out, birth: int | None) -> Handle:
        if out.dtype not in DTYPE_BYTES:
            raise GraphError(f"{out.name or 'a tensor'} has the unknown dtype {out.dtype!r}")
        nbytes = math.prod(out.shape) * DTYPE_BYTES[out.dtype]
        self._blocks.append(_Block(nbytes, self.device, out.role, birth, out.name, -1 if birth is None else birth))
        return self._add(len(self._blocks) - 1, out, out.dtype)

    def _add(self, storage: int, out: Out, dtype: str) -> Handle:
        shape = tuple(out.shape)
        strides = contiguous(shape) if out.strides is None else tuple(out.strides)
        self._tensors.append(Tensor(storage, dtype, shape, strides, out.offset))
        return Handle(len(self._tensors) - 1, shape, dtype)


def contiguous(shape: Shape) -> tuple[int, ...]:
    """Return the strides, in elements, of a dense row-major tensor of ``shape``."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
