"""A Graph in the making: ops inserted, replaced and left out of another one, with the lifetimes of its storages kept.

A storage has its lifetime in the original Graph, from the op that allocated it to the one before which it was released,
unless it is new or its lifetime is noted as derived: then from its first use to its last.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tensortide.graph.communication import PROCESS_GROUP, writes_of
from tensortide.graph.model import TENSOR, Call, Const, Graph, Op, Role, Storage, Tensor, Value

replace = msgspec.structs.replace


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a tensor that is filled row by row."""
    strides, step = list[int](), 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= max(int(size), 1)
    return tuple(strides)


@dataclass(slots=True)
class Draft:
    """Changes to ``graph``: ``before`` each op those inserted there (its length: after the last one), and those that
    ``replaced`` it, which are none where it is left out.

    ``derived``: storages with a lifetime from their first use to their last; ``lasting`` ones of them outlive the step.
    """

    graph: Graph
    calls: list[Call] = field(init=False)
    tensors: list[Tensor] = field(init=False)
    storages: list[Storage] = field(init=False)
    before: dict[int, list[Op]] = field(default_factory=dict)
    replaced: dict[int, list[Op]] = field(default_factory=dict)
    derived: set[int] = field(default_factory=set)
    lasting: set[int] = field(default_factory=set)
    _numbers: dict[Call, int] = field(init=False)
    _views: dict[Tensor, int] = field(init=False)

    def __post_init__(self) -> None:
        self.calls, self.tensors = list(self.graph.calls), list(self.graph.tensors)
        self.storages = list(self.graph.storages)
        self._numbers = {call: number for number, call in enumerate(self.calls)}
        self._views = {tensor: number for number, tensor in enumerate(self.tensors)}

    def call(self, call: Call) -> int:
        """The number of ``call``."""
        number = self._numbers.setdefault(call, len(self.calls))
        if number == len(self.calls):
            self.calls.append(call)
        return number

    def tensor(self, tensor: Tensor) -> int:
        """The number of ``tensor``."""
        number = self._views.setdefault(tensor, len(self.tensors))
        if number == len(self.tensors):
            self.tensors.append(tensor)
        return number

    def fresh(
        self, like: int, shape: Sequence[int], role: Role = Role.TEMPORARY, dtype: str = "", name: str = ""
    ) -> int:
        """A tensor of a storage of its own, on the device of tensor ``like``, and of its dtype unless given another."""
        model = self.tensors[like]
        made = Tensor(len(self.storages), dtype or model.dtype, tuple(shape), contiguous(shape))
        nbytes = made.nbytes
        self.derived.add(len(self.storages))
        self.storages.append(Storage(nbytes, self.storages[model.storage].device, role, None, None, name))
        return self.tensor(made)

    def twin(self, tensor: int) -> int:
        """A tensor like ``tensor``, strides included, in a storage of its own."""
        view = self.tensors[tensor]
        made = self.fresh(tensor, view.shape)
        return self.tensor(replace(view, storage=self.tensors[made].storage, offset=0))

    def op(
        self,
        name: str,
        arguments: Mapping[str, object],
        outputs: Sequence[int] = (),
        *,
        like: Op,
        mutated: Sequence[str] | None = None,
        positional: int | None = None,
        tags: Sequence[str] = (),
    ) -> Op:
        """A new op in the place of ``like``. Tensors among the arguments are ``Hole``; ``mutated`` names those that it
        writes: ``self`` of an op whose name ends with an underscore, unless given."""
        if mutated is None:
            mutated = ("self",) if name.split(".")[1].endswith("_") else ()
        holes: list[int] = []
        values, written = list[tuple[str, Value]](), list[int]()
        for key, value in arguments.items():
            start = len(holes)
            values.append((key, _emptied(value, holes)))
            if key in mutated:
                written += range(start, len(holes))
        returns: Value = TENSOR if len(outputs) == 1 else tuple(TENSOR for _ in outputs) or None
        count = len(values) if positional is None else positional
        call = Call(name, tuple(values), count, tuple(written), returns, tuple(tags))
        return replace(like, call=self.call(call), inputs=tuple(holes), outputs=tuple(outputs), label="")

    def collective(
        self,
        name: str,
        tensors: Mapping[str, object],
        group: str,
        how: str = "",
        *,
        like: Op,
        **others: Any,
    ) -> Op:
        """The op ``c10d::name`` on ``tensors`` among the ranks of ``group``; ``how`` it reduces, and ``others`` that it
        is given."""
        given: dict[str, object] = {**tensors, "process_group": Const("opaque", f"{PROCESS_GROUP}{group}")}
        given |= {"reduce_op": Const("opaque", how)} if how else {}
        return self.op(f"c10d.{name}.default", given | others, like=like, mutated=writes_of(f"c10d::{name}"))

    def factory(self, name: str, out: int, given: Mapping[str, object], *, like: Op, **others: object) -> Op:
        """The op ``aten.NAME`` that makes ``out``, of its dtype and device, from the positional arguments ``given``."""
        view = self.tensors[out]
        device = self.storages[view.storage].device
        placed = {"dtype": Const("dtype", view.dtype), "device": Const("device", device)}
        return self.op(f"aten.{name}", {**given, **placed, **others}, [out], like=like, positional=len(given))

    def as_strided(self, source: int, view: int, *, like: Op) -> Op:
        """The op that sees the storage of ``source`` as the tensor ``view`` of it, in the place of ``like``."""
        to = self.tensors[view]
        given = {"self": Hole(source), "size": to.shape, "stride": to.strides, "storage_offset": to.offset}
        return self.op("aten.as_strided.default", given, [view], like=like, tags=["view"])

    def moved(self, op: Op, homes: Mapping[int, tuple[int, int]]) -> Op:
        """``op`` with what lies in the storages ``homes`` in others, each with what is added to its offset."""

        def home(tensor: int) -> int:
            view = self.tensors[tensor]
            if view.storage not in homes:
                return tensor
            storage, offset = homes[view.storage]
            return self.tensor(replace(view, storage=storage, offset=view.offset + offset))

        return replace(op, inputs=tuple(map(home, op.inputs)), outputs=tuple(map(home, op.outputs)))

    def insert(self, index: int, *ops: Op) -> None:
        """Insert ``ops`` before the op at ``index`` of the original, after others inserted there."""
        self.before.setdefault(index, []).extend(ops)

    def finished(self, **changes: object) -> Graph:
        """The Graph with all changes, and with other parts replaced by ``changes``."""
        ops, starts = list[Op](), list[int]()
        for index, op in enumerate(self.graph.ops):
            starts.append(len(ops))
            ops += self.before.get(index, ())
            ops += self.replaced.get(index, (op,))
        starts.append(len(ops))
        ops += self.before.get(len(self.graph.ops), ())
        storages = self._with_lifetimes(ops, starts)
        parts = {"ops": tuple(ops), "calls": tuple(self.calls), "tensors": tuple(self.tensors), "storages": storages}
        return replace(self.graph, **parts, composites=None, **changes)

    def _with_lifetimes(self, ops: list[Op], starts: list[int]) -> tuple[Storage, ...]:
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for index, op in enumerate(ops):
            for tensor in (*op.inputs, *op.outputs):
                first.setdefault(self.tensors[tensor].storage, index)
                last[self.tensors[tensor].storage] = index
        found = []
        for number, storage in enumerate(self.storages):
            birth, death = storage.birth, storage.death
            if number in self.derived:
                birth = first.get(number)
                death = None if number in self.lasting or birth is None else last[number] + 1
            else:
                birth = None if birth is None else first.get(number, starts[birth])
                if death is not None:
                    death = max(starts[death] if death < len(starts) else len(ops), last.get(number, -1) + 1)
                    death = max(death, 0 if birth is None else birth + 1)
            found.append(replace(storage, birth=birth, death=death))
        return tuple(found)


class Hole(int):
    """The number of a tensor, as an argument of a new op."""


def _emptied(value: object, holes: list[int]) -> Value:
    if isinstance(value, Hole):
        holes.append(int(value))
        return TENSOR
    if isinstance(value, tuple | list):
        return tuple(_emptied(item, holes) for item in value)
    return value  # type: ignore[return-value]  # a plain argument


def allocation(draft: Draft, tensor: int, like: Op) -> Op:
    """The op that allocates a new tensor without contents, with its strides."""
    view = draft.tensors[tensor]
    if view.strides == contiguous(view.shape):
        return draft.factory("empty.memory_format", tensor, {"size": view.shape}, like=like, pin_memory=False)
    given = {"size": view.shape, "stride": view.strides}
    return draft.factory("empty_strided.default", tensor, given, like=like, pin_memory=False)


@dataclass(slots=True)
class Builder:
    """Builds ops in the place of ``like``."""

    draft: Draft
    like: Op

    def make(self, name: str, arguments: Mapping[str, object], out: int, **options: Any) -> Op:
        """An op ``aten.NAME`` with one output."""
        return self.draft.op(f"aten.{name}", arguments, [out], like=self.like, **options)

    def column(self, tensor: int) -> tuple[Op, int]:
        """The op that views ``tensor`` with a last dimension of 1."""
        view = self.draft.tensors[tensor]
        made = self.draft.tensor(Tensor(view.storage, view.dtype, (*view.shape, 1), (*view.strides, 1), view.offset))
        return self.make("unsqueeze.default", {"self": Hole(tensor), "dim": -1}, made, tags=["view"]), made


def compacted(graph: Graph, kept: Collection[int] | None = None) -> Graph:
    """``graph`` without calls, tensors and storages that nothing refers to any more, but with all that exist before the
    step, or with those ``kept``."""
    used = {t for op in graph.ops for t in (*op.inputs, *op.outputs)} | {entry.tensor for entry in graph.named}
    touched = {graph.tensors[t].storage for t in used}
    given = {s for s, storage in enumerate(graph.storages) if storage.birth is None} if kept is None else set(kept)
    left = sorted(touched | given)
    storage_number = {old: new for new, old in enumerate(left)}
    tensors = [t for t in range(len(graph.tensors)) if t in used]
    number = {old: new for new, old in enumerate(tensors)}
    calls = sorted({op.call for op in graph.ops})
    call_number = {old: new for new, old in enumerate(calls)}
    return replace(
        graph,
        calls=tuple(graph.calls[call] for call in calls),
        tensors=tuple(replace(graph.tensors[t], storage=storage_number[graph.tensors[t].storage]) for t in tensors),
        storages=tuple(graph.storages[s] for s in left),
        ops=tuple(
            replace(
                op,
                call=call_number[op.call],
                inputs=tuple(number[t] for t in op.inputs),
                outputs=tuple(number[t] for t in op.outputs),
            )
            for op in graph.ops
        ),
        named=tuple(replace(entry, tensor=number[entry.tensor]) for entry in graph.named),
    )
