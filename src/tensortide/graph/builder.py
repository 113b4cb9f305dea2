"""A Graph built op by op, by hand or by an importer.

>>> b = GraphBuilder("mlp")
>>> batch = b.symbol("batch", 8)
>>> x, w = b.input("x", (batch, 784)), b.parameter("fc.weight", (784, 10))
>>> with b.module("fc", "Linear"):
...     y = b.op("aten.mm", x, w, out=(batch, 10))
>>> b.output(y)
>>> b.build()
<Graph 'mlp': 1 ops, 3 storages>
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from tensortide.dtypes import storage_bytes
from tensortide.errors import GraphError
from tensortide.expr import sized, symbol
from tensortide.graph.calls import Bound, bound, of_named
from tensortide.graph.handles import (
    Body,
    Given,
    Handle,
    Out,
    Shape,
    checked_shape,
    checked_size,
    contiguous,
    extent_bytes,
    itself,
    owned,
)
from tensortide.graph.model import (
    OUTSIDE,
    TENSOR,
    Call,
    Graph,
    Loop,
    Meta,
    Named,
    Op,
    Phase,
    Role,
    Storage,
    Tensor,
    Value,
)
from tensortide.graph.places import Places
from tensortide.graph.validate import validate

LASTING = (Role.PARAMETER, Role.BUFFER, Role.OPTIMIZER_STATE, Role.CACHE)
"""Roles of storages that outlive the step, whoever allocates them."""
_END = 1 << 62


@dataclass(slots=True)
class _Block:
    nbytes: int
    device: str
    role: Role
    birth: int | None
    name: str
    last: int


class GraphBuilder(Places):
    """Builds a Graph: values first, then ops in the order in which they run, then ``build``.

    Storages live from the op that allocates them to their last use; those of outputs, parameters, buffers, optimizer
    state and inputs stay. What the forward pass allocates and another phase reads becomes an activation. Sizes may
    carry expressions: those of ``symbol``, or of ``tensortide.expr``.
    """

    def __init__(self, workload: str = "", *, framework: str = "", device: str = "cpu") -> None:
        self.meta = Meta(workload=workload, framework=framework, captured_on="file")
        super().__init__(device)
        self._ops: list[Op] = []
        self._calls: list[Call] = []
        self._interned: dict[object, int] = {}
        self._tensors: list[Tensor] = []
        self._blocks: list[_Block] = []
        self._loops: list[Loop] = []
        self._named: list[Named] = []
        self._outputs: set[int] = set()
        self._loop = OUTSIDE

    # --- values that exist before the step -----------------------------------------------------------

    def symbol(self, name: str, value: int) -> int:
        """Make a size ``name`` that is ``value`` here: arithmetic with it gives expressions in it, which totals keep.

        Raises GraphError for a name that is no identifier, and for a negative value.
        """
        if not name.replace(".", "_").isidentifier() or checked_size(f"the symbol {name!r}", value) < 0:
            raise GraphError(f"a symbol has a name and a size: not {name!r}, {value}")
        return sized(symbol(name), value)

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
        """Add a tensor that exists before the step and after it. ``nbytes``: it is stored in so many bytes, packed or
        sparse. Raises GraphError for an unknown dtype or a negative dimension."""
        handle = self._fresh(f"{role} {name!r}", Out(shape, dtype, role=role, name=name), dtype, None)
        if nbytes is not None:
            self._blocks[-1].nbytes = nbytes
        self._named.append(Named(name, role, handle.index, trainable))
        return handle

    def input(self, name: str, shape: Shape, dtype: str = "float32") -> Handle:
        """Add an input of the step."""
        return self.value(name, shape, dtype)

    def parameter(self, name: str, shape: Shape, dtype: str = "float32", *, trainable: bool = True) -> Handle:
        """Add a parameter of the model."""
        return self.value(name, shape, dtype, role=Role.PARAMETER, trainable=trainable)

    def state(self, name: str, shape: Shape, dtype: str = "float32") -> Handle:
        """Add a tensor of the optimizer's state."""
        return self.value(name, shape, dtype, role=Role.OPTIMIZER_STATE)

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
        *inputs: Given,
        out: Shape | Out | Handle | None = None,
        dtype: str = "",
        role: Role = Role.TEMPORARY,
        arguments: Mapping[str, Given] | None = None,
        names: Sequence[str] = (),
        mutates: Sequence[Handle] | None = None,
        tags: Sequence[str] = (),
        label: str = "",
    ) -> Handle:
        """Append an op with one output and return that; the parameters are those of ``ops``.

        ``out`` is its shape, an Out, or a tensor of the same shape and dtype; it may be left out for an op in place,
        which returns what it writes. The dtype is by default that of the first input. ``role`` is that of the output:
        ``Role.GRADIENT`` for the gradient of a parameter.
        """
        if out is None:
            outs: tuple[Out, ...] | None = None
        elif isinstance(out, Out):
            outs = (out,)
        elif isinstance(out, Handle):
            outs = (Out(out.shape, dtype or out.dtype, role=role),)
        else:
            outs = (Out(out, dtype, role=role),)
        made = self.ops(
            name, *inputs, outs=outs, arguments=arguments, names=names, mutates=mutates, tags=tags, label=label
        )
        if len(made) != 1:
            raise GraphError(f"{name} has {len(made)} outputs here; ops(...) returns them all")
        return made[0]

    def ops(
        self,
        name: str,
        *inputs: Given,
        outs: Sequence[Out] | None = (),
        arguments: Mapping[str, Given] | None = None,
        names: Sequence[str] = (),
        mutates: Sequence[Handle] | None = None,
        tags: Sequence[str] = (),
        label: str = "",
    ) -> tuple[Handle, ...]:
        """Append an op ``namespace.name.overload`` and return its outputs.

        ``inputs`` are tensors, lists of tensors, None for absent ones, and other values; ``arguments`` are those by
        name. A rule of the cost table finds them by ``names``; by default an op of PyTorch has the names of its
        signature (and ``aten.add`` the overload that fits), another op ``x0, x1, ...``. ``mutates`` are the inputs it
        writes in place, by default those that the signature says. ``outs`` None: the outputs are what it writes.
        ``label`` is its own name in its source.

        Raises GraphError for arguments that do not fit, an unknown dtype, a negative dimension, a view that is larger
        than its storage, or a mutated tensor that is no input.
        """
        call = bound(name, inputs, arguments or {}, names, mutates)
        if outs is None:
            if not call.mutated:
                raise GraphError(f"{name} needs the shape of what it returns: out=(...)")
            outs = [itself(call.handles[i], self._tensors) for i in call.mutated]
        return tuple([handle for handle in self._append(call, outs, tags, label) if handle is not None])

    def call(
        self,
        name: str,
        arguments: Sequence[tuple[str, Given]],
        *,
        positional: int = 0,
        outs: Sequence[Out | None] = (),
        mutates: Sequence[Handle] = (),
        tags: Sequence[str] = (),
        label: str = "",
    ) -> tuple[Handle | None, ...]:
        """Append an op whose ``arguments`` all have names, as a recorded call has them; the first ``positional`` are
        passed by position. None among ``outs`` is a result that the op does not make.

        Returns a handle for each of ``outs``. Raises GraphError as ``ops`` does.
        """
        return self._append(of_named(name, arguments, positional, mutates), outs, tags, label)

    def _append(
        self, call: Bound, outs: Sequence[Out | None], tags: Sequence[str], label: str
    ) -> tuple[Handle | None, ...]:
        at = len(self._ops)
        for handle in call.handles:
            self._use(call.op, handle, at)
        default = call.handles[0].dtype if call.handles else "float32"
        made = tuple([None if out is None else self._made(call.op, out, out.dtype or default, at) for out in outs])
        self._ops.append(
            Op(
                self._call(call, [out is not None for out in outs], tuple(tags)),
                tuple([handle.index for handle in call.handles]),
                tuple([handle.index for handle in made if handle is not None]),
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

    def output(self, *handles: Handle, **named: Handle) -> None:
        """Declare outputs of the step: they outlive it. Those given by keyword have that name."""
        given = [owned("output", handle, self, len(self._tensors)) for handle in (*handles, *named.values())]
        self._outputs |= {self._tensors[index].storage for index in given}
        self._named += (Named(name, Role.OUTPUT, handle.index) for name, handle in named.items())

    def keep(self, handle: Handle, role: Role) -> None:
        """Give the storage of ``handle`` a role, and keep it to the end of the step: a gradient that accumulates."""
        block = self._blocks[self._tensors[handle.index].storage]
        block.role, block.last = role, _END

    def assume(self, *texts: str, decisive: bool = False) -> None:
        """Add what is assumed of the step to the Graph's assumptions; ``decisive``: its ops or sizes depend on that."""
        fresh = dict.fromkeys((*self.meta.assumptions, *texts))
        decide = dict.fromkeys((*self.meta.decisive, *(texts if decisive else ())))
        self.meta = msgspec.structs.replace(self.meta, assumptions=tuple(fresh), decisive=tuple(decide))

    @contextmanager
    def loop(
        self, name: str, trips: int | None, *, assumed: bool = False, gradient_of: Body | None = None
    ) -> Iterator[Body]:
        """The ops in this block are the body of a loop that runs ``trips`` times; None, or ``assumed``: nobody knows
        how often. ``gradient_of`` is the forward loop whose iterations it retraces.

        Yields a function ``carry(reads, next)``: the body reads ``reads`` as an iteration starts, and ``next`` takes
        its place in the following one.
        """
        body, start = Body(len(self._loops)), len(self._ops)
        retraced = OUTSIDE if gradient_of is None else gradient_of.index
        times = 1 if trips is None else checked_size(f"the trip count of loop {name!r}", trips)
        loop = Loop(name, self._loop, times, retraced, (), assumed or trips is None)
        self._loops.append(loop)
        before, self._loop = self._loop, body.index
        try:
            yield body
        finally:
            self._loop = before
        self._loops[body.index] = msgspec.structs.replace(loop, carried=tuple(body.carried))
        self._keep_through(start, body.carried)

    # --- the Graph ------------------------------------------------------------------------------------

    def build(self) -> Graph:
        """Return the Graph. Raises GraphError for one that is not valid."""
        saved = self._saved()
        graph = Graph(
            tuple(self._ops),
            tuple(self._calls),
            tuple(self._tensors),
            tuple([self._storage(index, block, index in saved) for index, block in enumerate(self._blocks)]),
            tuple(self._modules),
            tuple(self._sources),
            tuple(self._branches),
            tuple(self._named),
            self.meta,
            tuple(self._loops),
        )
        validate(graph)
        return graph

    def _storage(self, index: int, block: _Block, is_saved: bool) -> Storage:
        role = block.role
        lasts = block.birth is None or index in self._outputs or role in LASTING
        if role is Role.TEMPORARY:
            role = Role.OUTPUT if index in self._outputs else Role.ACTIVATION if is_saved else role
        death = None if lasts else min(block.last + 1, len(self._ops))
        return Storage(block.nbytes, block.device, role, block.birth, death, block.name)

    def _saved(self) -> set[int]:
        """Storages that the forward pass allocates and a later phase reads."""
        late = (op for op in self._ops if op.phase is not Phase.FORWARD)
        read = {self._tensors[i].storage for op in late for i in op.inputs}
        born = {i: block.birth for i, block in enumerate(self._blocks) if block.birth is not None}
        return {i for i in read if i in born and self._ops[born[i]].phase is Phase.FORWARD}

    def _keep_through(self, start: int, carried: Sequence[tuple[int, int]]) -> None:
        """Keep what the body of a loop reads from outside, and what it carries, until its last op."""
        end = len(self._ops) - 1
        pairs = {i for pair in carried for i in pair}
        for tensor in {i for op in self._ops[start:] for i in op.inputs} | pairs:
            block = self._blocks[self._tensors[tensor].storage]
            if block.birth is None or block.birth < start or tensor in pairs:
                block.last = max(block.last, end)

    def _call(self, call: Bound, made: Sequence[bool], tags: tuple[str, ...]) -> int:
        """Intern a call. Its values are compared as texts: 1, 1.0 and True are equal, and not the same."""
        key = (call.op, call.positional, call.mutated, tuple(made), tags, repr(call.arguments))
        known = self._interned.setdefault(key, len(self._calls))
        if known == len(self._calls):
            holes: tuple[Value, ...] = tuple([TENSOR if each else None for each in made])
            returns: Value = holes if len(holes) > 1 else holes[0] if holes else None
            self._calls.append(Call(call.op, call.arguments, call.positional, call.mutated, returns, tags))
        return known

    def _use(self, op: str, handle: Handle, at: int) -> None:
        block = self._blocks[self._tensors[owned(op, handle, self, len(self._tensors))].storage]
        block.last = max(block.last, at)

    def _made(self, op: str, out: Out, dtype: str, at: int) -> Handle:
        if out.view_of is None:
            return self._fresh(op, out, dtype, at)
        self._use(op, out.view_of, at)
        storage = self._tensors[out.view_of.index].storage
        handle = self._add(op, storage, out, dtype)
        block, tensor = self._blocks[storage], self._tensors[-1]
        if block.nbytes and (end := extent_bytes(tensor)) > block.nbytes:
            raise GraphError(
                f"{op}: a view of shape {handle.shape}, strides {tensor.strides} and offset {tensor.offset} ends "
                f"after {end} bytes, its storage after {int(block.nbytes)}"
            )
        return handle

    def _fresh(self, what: str, out: Out, dtype: str, birth: int | None) -> Handle:
        handle = self._add(what, len(self._blocks), out, dtype)
        nbytes = storage_bytes(dtype, handle.shape)
        self._blocks.append(_Block(nbytes, self.device, out.role, birth, out.name, -1 if birth is None else birth))
        return handle

    def _add(self, what: str, storage: int, out: Out, dtype: str) -> Handle:
        shape = checked_shape(what, out.shape, dtype)
        strides = contiguous(shape) if out.strides is None else tuple(out.strides)
        self._tensors.append(Tensor(storage, dtype, shape, strides, out.offset))
        return Handle(len(self._tensors) - 1, shape, dtype, self)
