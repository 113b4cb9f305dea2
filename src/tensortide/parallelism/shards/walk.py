"""Walks a step in order and makes the ops of its shards."""

from __future__ import annotations

from collections.abc import Iterator

from tensortide.graph.model import TENSOR, Graph, Named, Op, Phase, Role, Value
from tensortide.parallelism.draft import Hole, replace
from tensortide.parallelism.local_forms import ADDENDS
from tensortide.parallelism.shards.axis_split import Facts, product_of
from tensortide.parallelism.shards.contents import OWN, Contents, Label, Pending
from tensortide.parallelism.shards.regions import Divided, Region
from tensortide.parallelism.sites import base_name


class Walk(Contents):
    """Makes the Graph of the shards ``found`` in the step of ``facts``, op by op."""

    def __init__(self, facts: Facts, found: Divided) -> None:
        super().__init__(facts, found)
        backward = [i for i, op in enumerate(self.graph.ops) if op.phase is Phase.BACKWARD]
        self.turn = backward[-1] + 1 if backward else len(self.graph.ops)

    def finished(self, named: tuple[Named, ...]) -> tuple[Graph, dict[int, int]]:
        """The Graph, and for ops that belong where another one is that op."""
        graph = self.draft.finished(named=named, modules=self.modules.all)
        starts: list[int] = []
        labels: list[Label] = []
        first: dict[int, int] = {}
        for index in range(len(self.graph.ops) + 1):
            here = self.labels.get(index, [])
            starts.append(len(labels) + self.main.get(index, len(here)))
            labels += here
        for at, op in enumerate(graph.ops):
            region = self.modules.first_shard.get(op.module)
            if region is not None:
                first.setdefault(region, at)
        follows: dict[int, int] = {}
        for at, (kind, number) in enumerate(labels):
            if kind == "reader" and starts[number] < len(graph.ops):
                follows[at] = starts[number]
            elif kind == "region" and number in first:
                follows[at] = first[number]
            elif kind == "before":
                follows[at] = at - number
        return graph, follows

    def _rest(self, index: int) -> Label:
        """The label of an op that runs whole: in a region it goes with the first shard."""
        region = self.found.of.get(index)
        return OWN if region is None or self.facts.is_view[index] else ("region", self.modules.number(region))

    def op(self, index: int) -> None:
        """Meet the op at ``index``."""
        self.index = index
        if index == self.turn:
            self._end_passes()
        region = self.found.of.get(index)
        op = self.graph.ops[index]
        if self.facts.is_view[index]:
            self._view(index, op, region)
        elif region is not None and self.found.by_part(index):
            self._divide(index, op, region)
        elif op.inputs and all(self.graph.tensors[t].storage in self.found.beside for t in (*op.inputs, *op.outputs)):
            self._repeat(index, op)
        else:
            self._keep(index, op)

    def end(self) -> None:
        """Complete what outlives the step and is not in parts for good."""
        self.index = len(self.graph.ops)
        self._end_passes()

    def _end_passes(self) -> None:
        """Combine what the passes have left partial, and join the parts of what the step returns."""
        for storage, held in enumerate(self.graph.storages):
            if storage in self.pending or (held.role is Role.OUTPUT and storage in self.truth):
                self.need_whole(storage)

    def _view(self, index: int, op: Op, region: Region | None) -> None:
        """A view of parts is made in each of them, or when something reads it; a view of a whole at once."""
        storage = self.graph.tensors[op.outputs[0]].storage
        parts = None if region is None else self.valid(storage, region.split)
        if parts is not None and region is not None and not region.split.why_whole(index):
            for part in range(len(parts.split)):
                for tensor in op.outputs:
                    if parts.split.carries(tensor):
                        self.local(tensor, region, part)
            if storage in self.truth:
                self.draft.replaced[index] = []
                return
        if storage in self.pending or storage in self.truth or storage in self.replicas or region is not None:
            self.draft.replaced[index] = []  # it is made when something reads it
            return
        self._emit_whole(index, op)

    def _keep(self, index: int, op: Op) -> None:
        """An op that runs whole."""
        for tensor in op.inputs:
            self.need_whole(self.graph.tensors[tensor].storage)
        self._emit_whole(index, op)
        for storage in self.graph.index.writes[index]:
            self._forget(storage)

    def _emit_whole(self, index: int, op: Op) -> None:
        inputs = tuple(self.whole_tensor(tensor) for tensor in op.inputs)
        outputs = tuple(map(self.whole_number, op.outputs))
        self.made.update(outputs)
        self.draft.replaced[index] = []
        self.emit(replace(op, inputs=inputs, outputs=outputs), self._rest(index), main=True)

    def _forget(self, storage: int) -> None:
        """Note that the whole of a storage has been written: parts and copies of it are stale."""
        self.truth.pop(storage, None)
        self.joined.discard(storage)
        for key in [key for key in self.copies if key[0] == storage]:
            del self.copies[key]

    def _repeat(self, index: int, op: Op) -> None:
        """An op on states of which every shard has its own, in each of them."""
        region = self.found.beside[self.graph.tensors[op.inputs[0]].storage]
        self.draft.replaced[index] = []
        for part in range(len(region.split) if self.graph.index.writes[index] else 1):
            inputs, outputs = (tuple(self._input(t, region, part) for t in side) for side in (op.inputs, op.outputs))
            module = self.modules.of_part(region, part, op.module)
            self.emit(replace(op, inputs=inputs, outputs=outputs, module=module), OWN, main=True)

    def _divide(self, index: int, op: Op, region: Region) -> None:
        split, tensors = region.split, self.graph.tensors
        self.draft.replaced[index] = []
        for tensor in op.inputs:
            storage = tensors[tensor].storage
            if split.carries(tensor) and split.slab(storage) is not None:
                self.need_parts(storage, split)
            elif storage not in self.replicas:
                self.need_whole(storage)
        read = {tensors[t].storage for t in op.inputs}
        partials = split.partials(index)
        for tensor in op.outputs:
            storage = tensors[tensor].storage
            if storage not in read and storage not in self.truth and split.carries(tensor):
                self.truth[storage] = self.new_parts(storage, split)
        twins: dict[int, list[int]] = {}
        for part in range(len(split)):
            inputs = {slot: self._input(tensor, region, part) for slot, tensor in enumerate(op.inputs)}
            outputs = [self._output(tensor, region, part, twins, tensor in partials) for tensor in op.outputs]
            self._emit_part(index, region, part, inputs, outputs)
        for tensor, made in twins.items():
            storage = tensors[tensor].storage
            if tensor in partials:
                self.pending[storage] = Pending(partials[tensor], made, tensor, region, op)
                if self.graph.storages[storage].role is Role.GRADIENT:
                    self.need_whole(storage)
            else:
                self.replicas[storage] = made
        for storage in self.graph.index.writes[index]:
            parts = self.copies.get((storage, id(split)))
            if parts is not None:
                self._forget(storage)
                self.truth[storage] = parts
            self.joined.discard(storage)

    def _input(self, tensor: int, region: Region, part: int) -> int:
        if region.split.carries(tensor):
            return self.local(tensor, region, part)
        replica = self.replicas.get(self.graph.tensors[tensor].storage)
        if replica is not None and part < len(replica):
            view = replace(self.graph.tensors[tensor], storage=self.draft.tensors[replica[part]].storage)
            return self.draft.tensor(view)
        return self.whole_tensor(tensor)

    def _output(self, tensor: int, region: Region, part: int, twins: dict[int, list[int]], partial: bool) -> int:
        """The output of one part: of parts of a storage, or a storage of its own for what is partial, or the same in
        all parts and that of the first one."""
        storage, split = self.graph.tensors[tensor].storage, region.split
        parts = self.valid(storage, split) if split.carries(tensor) else None
        if parts is not None:
            number = self.number(tensor, parts, part)
            parts.anchors[part] = number if parts.anchors[part] < 0 else parts.anchors[part]
        else:
            number = self.draft.twin(tensor) if part or partial else tensor
            twins.setdefault(tensor, []).append(number)
        self.made.add(number)
        return number

    def _emit_part(self, index: int, region: Region, part: int, inputs: dict[int, int], outputs: list[int]) -> None:
        """Make one part of an op. What a product adds is added by the first part alone if the parts are summed."""
        op = self.graph.ops[index]
        call = region.split.call(index, part)
        module = self.modules.of_part(region, part, op.module)
        like = replace(op, module=module)
        name = base_name(call.op)
        summand = ADDENDS.get(name, "")
        if part and summand and region.split.partials(index):
            holes = iter(inputs.values())
            arguments = {key: _filled(value, holes) for key, value in call.arguments}
            if product_of(name):
                del arguments[summand]
                factors = dict(zip(("self", "mat2"), arguments.values(), strict=False))
                self.emit(self.draft.op(product_of(name), factors, outputs, like=like), OWN, main=True)
                return
            arguments[summand] = None
            made = self.draft.op(call.op, arguments, outputs, like=like, positional=call.positional, tags=call.tags)
            self.emit(made, OWN, main=True)
            return
        made = replace(like, call=self.draft.call(call), inputs=tuple(inputs.values()), outputs=tuple(outputs))
        self.emit(made, OWN, main=True)


def _filled(value: Value, holes: Iterator[int]) -> object:
    """An argument with the numbers of tensors in its holes."""
    if value is TENSOR:
        return Hole(next(holes))
    return tuple(_filled(item, holes) for item in value) if isinstance(value, tuple) else value
