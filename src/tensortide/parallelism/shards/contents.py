"""Contents of storages as a step with shards is made: whole, in parts, or partial, and the ops that go between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from tensortide.graph.model import Const, Graph, Op, Role, Tensor
from tensortide.parallelism.draft import Draft, Hole, contiguous, replace
from tensortide.parallelism.shards.axis_split import COMBINED, AxisSplit, Facts
from tensortide.parallelism.shards.modules import ShardModules
from tensortide.parallelism.shards.regions import Divided, Region

Label: TypeAlias = tuple[str, int]
"""Where an op belongs: with the first op in the place of the one at an index (``reader``), with the first op of a
region's first shard (``region``), with the op so many before it (``before``), or to its module (``own``)."""
OWN: Label = ("own", 0)


@dataclass(slots=True)
class Parts:
    """A storage in parts: a storage for each, and a tensor of each that has been made."""

    split: AxisSplit
    storages: list[int]
    anchors: list[int]


class Pending(NamedTuple):
    """Partial results of the parts, not yet combined into ``whole``, the region that made them, and the op of the
    whole step that they are parts of."""

    how: str
    parts: list[int]
    whole: int
    region: Region
    op: Op


class Contents:
    """Contents of the storages of a step with the shards ``found``, before the op at ``index``.

    They are whole, or in parts (``truth``); then ``joined`` ones have been concatenated since they were written.
    ``copies`` are slices of what is whole, by storage and split, as long as they are valid. ``replicas``: the tensor
    of each part of what is the same in all of them. ``whole``: where the whole lies, if it is another storage.
    """

    def __init__(self, facts: Facts, found: Divided) -> None:
        self.facts, self.found = facts, found
        self.graph: Graph = facts.graph
        self.draft = Draft(facts.graph)
        self.modules = ShardModules(facts.graph, found)
        self.truth: dict[int, Parts] = {}
        self.joined: set[int] = set()
        self.copies: dict[tuple[int, int], Parts] = {}
        self.pending: dict[int, Pending] = {}
        self.replicas: dict[int, list[int]] = {}
        self.whole: dict[int, int] = {}
        self.made: set[int] = set()
        self.seen_whole: set[int] = set()
        self.followed: set[int] = set()
        self.labels: dict[int, list[Label]] = {}
        self.index = 0
        written = {s for index in range(len(self.graph.ops)) for s in self.graph.index.writes[index]}
        self.free = {s for s, held in enumerate(self.graph.storages) if held.birth is None} - written
        self.main: dict[int, int] = {}
        for storage, region in found.given.items():
            self.truth[storage] = self.new_parts(storage, region.split)
        for storage, region in found.beside.items():
            self.replicas[storage] = self._copies_beside(storage, region.split)

    def _copies_beside(self, storage: int, split: AxisSplit) -> list[int]:
        """A tensor of each part's own copy of a state, that of the first one in the place of the whole."""
        held, tensor = self.graph.storages[storage], self.facts.of_storage[storage][0]
        self.draft.storages[storage] = replace(held, name=self.part_name(held.name, storage, 0))
        found = [tensor]
        for part in range(1, len(split)):
            number = len(self.draft.storages)
            self.draft.storages.append(replace(held, name=self.part_name(held.name, storage, part)))
            found.append(self.draft.tensor(replace(self.graph.tensors[tensor], storage=number)))
        return found

    def part_name(self, name: str, storage: int, part: int) -> str:
        """The name of one part of a storage or tensor called ``name``: the shard after the parameter's own name."""
        parameter = self.modules.parameter_of(storage)
        if not parameter or not (name == parameter or name.startswith(f"{parameter}.")):
            return f"{name}.shard{part}" if name else ""
        return f"{parameter}.shard{part}{name.removeprefix(parameter)}"

    def only_parts(self, storage: int) -> bool:
        """Return whether the contents of a storage are in parts now, and nowhere whole."""
        return storage in self.truth and storage not in self.joined

    def parts_of(self, tensor: int) -> list[int]:
        """A tensor of a storage in parts, in each of them."""
        parts = self.truth[self.graph.tensors[tensor].storage]
        if not parts.split.carries(tensor):
            return list(parts.anchors)
        return [self.number(tensor, parts, part) for part in range(len(parts.split))]

    def emit(self, op: Op, label: Label, *, main: bool = False) -> None:
        """Insert an op where the walk is. The ``main`` ones are in the place of the op that is met."""
        self.draft.insert(self.index, op)
        if main:
            self.main.setdefault(self.index, len(self.labels.get(self.index, ())))
        self.labels.setdefault(self.index, []).append(label)

    def new_parts(self, storage: int, split: AxisSplit) -> Parts:
        """Storages for the parts of one, with its lifetime and role."""
        numbers = []
        for part in range(len(split)):
            held = split.storage(storage, part)
            numbers.append(len(self.draft.storages))
            self.draft.storages.append(replace(held, name=self.part_name(held.name, storage, part)))
        return Parts(split, numbers, [-1] * len(split))

    def valid(self, storage: int, split: AxisSplit) -> Parts | None:
        """The parts of a storage along ``split`` that have its contents now."""
        parts = self.truth.get(storage)
        if parts is not None and parts.split is split:
            return parts
        return self.copies.get((storage, id(split)))

    def need_parts(self, storage: int, split: AxisSplit) -> None:
        """Have the parts of a storage, sliced out of the whole if there are none."""
        if self.valid(storage, split) is not None:
            return
        self.need_whole(storage)
        slab = split.slab(storage)
        assert slab is not None
        source = self._any_whole(storage)
        base = self.draft.tensors[source]
        made: list[int] = []
        label: Label = OWN
        if storage in self.free and storage not in self.followed:
            self.followed.add(storage)  # given, and nothing else decides where it is
            label = ("reader", self.index)
        like = self.like()
        for start, size in zip(split.starts, split.sizes, strict=True):
            shape = (slab.outer, size, slab.inner)
            strides = (slab.size * slab.inner, slab.inner, 1)
            view = self.draft.tensor(Tensor(base.storage, base.dtype, shape, strides, start * slab.inner))
            self.emit(self.draft.as_strided(source, view, like=like), label)
            copy = self.draft.fresh(view, shape)
            given = {"self": Hole(view), "memory_format": Const("memory_format", "contiguous_format")}
            self.emit(self.draft.op("aten.clone.default", given, [copy], like=like, positional=1), ("before", 1))
            self.made.update((view, copy))
            made.append(copy)
        storages = [self.draft.tensors[copy].storage for copy in made]
        self.copies[storage, id(split)] = Parts(split, storages, made)

    def need_whole(self, storage: int) -> None:
        """Have the whole of a storage: combine partial results, or concatenate parts."""
        if storage in self.pending:
            self._combine(storage, self.pending.pop(storage))
        elif storage in self.truth and storage not in self.joined:
            self._concatenate(storage, self.truth[storage])
            self.joined.add(storage)

    def _combine(self, storage: int, pending: Pending) -> None:
        """Combine partial results, in the order of the parts."""
        like = replace(self.like(), phase=pending.op.phase)
        gradient = self.graph.storages[storage].role is Role.GRADIENT
        label = ("region", self.modules.number(pending.region)) if gradient else self._to_reader(pending.region)
        name, whole, split = COMBINED[pending.how], pending.whole, pending.region.split
        if pending.how == "avg":
            for part, tensor in enumerate(pending.parts):
                share = {"self": Hole(tensor), "other": split.sizes[part] / split.total}
                own = replace(like, module=self.modules.of_part(pending.region, part, pending.op.module))
                self.emit(self.draft.op("aten.mul_.Tensor", share, [tensor], like=own), OWN)
        overload = "Tensor" if name == "add" else "default"
        first, second, *others = pending.parts
        pair = {"self": Hole(first), "other": Hole(second)}
        self.emit(self.draft.op(f"aten.{name}.{overload}", pair, [whole], like=like), label)
        for other in others:
            pair = {"self": Hole(whole), "other": Hole(other)}
            if name in ("maximum", "minimum"):
                pair |= {"out": Hole(whole)}
                made = self.draft.op(f"aten.{name}.out", pair, [whole], like=like, mutated=["out"], positional=2)
            else:
                made = self.draft.op(f"aten.{name}_.{overload}", pair, [whole], like=like)
            self.emit(made, label)
        self.made.add(whole)

    def _concatenate(self, storage: int, parts: Parts) -> None:
        """Join the parts of a storage in memory."""
        split = parts.split
        slab = split.slab(storage)
        assert slab is not None
        region = next(region for region in self.found.regions if region.split is split)
        like, label = self.like(), self._to_reader(region)
        pieces = []
        for part, size in enumerate(split.sizes):
            shape = (slab.outer, size, slab.inner)
            view = self.draft.tensor(Tensor(parts.storages[part], slab.dtype, shape, contiguous(shape)))
            self.emit(self.draft.as_strided(self.anchor(storage, parts, part), view, like=like), OWN)
            self.made.add(view)
            pieces.append(Hole(view))
        home = storage
        if storage in self.seen_whole or storage in self.found.given:
            home = self.draft.tensors[self.draft.fresh(pieces[0], ())].storage
            held = self.graph.storages[storage]
            self.draft.storages[home] = replace(self.draft.storages[home], nbytes=held.nbytes)
        self.seen_whole.add(storage)
        self.whole[storage] = home
        shape = (slab.outer, slab.size, slab.inner)
        out = self.draft.tensor(Tensor(home, slab.dtype, shape, contiguous(shape)))
        arguments = {"tensors": tuple(pieces), "dim": 1}
        self.emit(self.draft.op("aten.cat.default", arguments, [out], like=like), label)
        self.made.add(out)

    def _to_reader(self, region: Region) -> Label:
        """The label of a sum or concatenation: that of its first reader, or of the first shard."""
        if self.index < len(self.graph.ops):
            return ("reader", self.index)
        return ("region", self.modules.number(region))

    def like(self) -> Op:
        """The op in whose phase, and at whose line, new ops are: the one that is met."""
        ops = self.graph.ops
        return ops[min(self.index, len(ops) - 1)]

    def number(self, tensor: int, parts: Parts, part: int) -> int:
        return self.draft.tensor(replace(parts.split.tensor(tensor, part), storage=parts.storages[part]))

    def anchor(self, storage: int, parts: Parts, part: int) -> int:
        """A tensor of one part of a storage, which has been made or is given."""
        if parts.anchors[part] < 0:
            known = next(t for t in self.facts.of_storage[storage] if parts.split.carries(t))
            parts.anchors[part] = self.number(known, parts, part)
        return parts.anchors[part]

    def local(self, tensor: int, region: Region, part: int) -> int:
        """The tensor of one part, viewed anew if it has not been made."""
        split, storage = region.split, self.graph.tensors[tensor].storage
        parts = self.valid(storage, split)
        if parts is None:  # it repeats memory along the axis: a smaller view of the whole
            source = self.whole_tensor(tensor)
            at = self.draft.tensors[source].storage
            number = self.draft.tensor(replace(split.tensor(tensor, part), storage=at))
        else:
            number = self.number(tensor, parts, part)
            if tensor in self.facts.given and storage in self.found.given:
                return number
            source = self.anchor(storage, parts, part)
        if number in self.made:
            return number
        like = self.like()
        if storage in self.truth:  # views of slices and of wholes are where those are made
            like = replace(like, module=self.modules.of_part(region, part, like.module))
        self.emit(self._viewed(tensor, region, part, source, number, like), OWN)
        self.made.add(number)
        return number

    def _viewed(self, tensor: int, region: Region, part: int, source: int, number: int, like: Op) -> Op:
        """The op that makes a tensor of a part: as the step views it if that is of this split, else by strides."""
        view = self.facts.views.get(tensor)
        record = None if view is None else self.graph.ops[view]
        if record is None or view is None or len(record.inputs) != 1 or len(record.outputs) != 1:
            return self.draft.as_strided(source, number, like=like)
        base = record.inputs[0]
        storage = self.graph.tensors[tensor].storage
        parts = self.valid(storage, region.split)
        own = self.found.of.get(view)
        alike = own is not None and own.split is region.split and not region.split.why_whole(view)
        if parts is None or not alike or not region.split.carries(base):
            return self.draft.as_strided(source, number, like=like)
        local = self.local(base, region, part)
        call = self.draft.call(region.split.call(view, part))
        return replace(like, call=call, inputs=(local,), outputs=(number,))

    def whole_number(self, tensor: int) -> int:
        view = self.graph.tensors[tensor]
        home = self.whole.get(view.storage, view.storage)
        return tensor if home == view.storage else self.draft.tensor(replace(view, storage=home))

    def whole_tensor(self, tensor: int) -> int:
        """A tensor of the whole, viewed anew if it has not been made."""
        number = self.whole_number(tensor)
        storage = self.graph.tensors[tensor].storage
        if number in self.made or (tensor in self.facts.given and storage not in self.whole):
            self.seen_whole.add(storage)
            return number
        view = self.facts.views.get(tensor)
        record = None if view is None else self.graph.ops[view]
        if record is not None and view is not None and len(record.inputs) == len(record.outputs) == 1:
            base = self.whole_tensor(record.inputs[0])
            made = replace(record, inputs=(base,), outputs=(number,), phase=self.like().phase)
            self.emit(made, OWN)
        else:
            self.emit(self.draft.as_strided(self._any_whole(storage), number, like=self.like()), OWN)
        self.made.add(number)
        return number

    def _any_whole(self, storage: int) -> int:
        """A tensor of the whole of a storage, which has been made or is given."""
        home = self.whole.get(storage, storage)
        self.seen_whole.add(storage)
        for tensor in self.facts.of_storage[storage]:
            number = self.whole_number(tensor)
            if number in self.made or (tensor in self.facts.given and home == storage):
                return number
        return max(number for number in self.made if self.draft.tensors[number].storage == home)
