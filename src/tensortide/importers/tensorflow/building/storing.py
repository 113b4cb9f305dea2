"""Storages of the tensors of a graph file: those that ops pass on, keep and take back share one."""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tensortide.dtypes import ITEM_BYTES
from tensortide.expr import Expr, compiled, sized
from tensortide.graph.model import Role, Storage, Tensor
from tensortide.importers.tensorflow.building.arrange import loop_chain
from tensortide.importers.tensorflow.optypes import CARRIERS, FEEDS, MERGES, NEXT, PASSES, SWITCHES, VARIABLES, updates
from tensortide.importers.tensorflow.program import OUTSIDE, Node, Program, Ref, Shape

REDUCTIONS = frozenset(["Sum", "Prod", "Mean", "Max", "Min", "All", "Any", "BiasAddGrad"])
"""Ops whose output is their input if it has the same shape: they reduce no axis."""

KEEPS = {
    "StackPushV2": 1, "TensorArrayWriteV3": 2, "TensorArrayScatterV3": 2, "TensorListSetItem": 2,
    "TensorListPushBack": 1,
}  # fmt: skip
"""Ops that keep a value under the handle that is their first input, and which input the value is."""

LISTS = frozenset({"TensorListSetItem", "TensorListPushBack", "TensorListPopBack", "TensorListResize"})
"""Ops whose first output is the list that is their first input."""

_HANDLES = CARRIERS | LISTS
_TAKES = frozenset({"TensorArrayGatherV3", "TensorArrayConcatV3", "TensorListStack", "TensorListGather"})
"""Ops that take all elements of an array."""

FLOWS = frozenset(
    [("TensorArrayV3", 1), ("TensorArrayGradV3", 1), ("TensorArrayWriteV3", 0), ("TensorArrayScatterV3", 0)]
)
"""Outputs that only order the uses of an array; nothing is in them."""

ADDS = frozenset({"Add", "AddV2"})


@dataclass(slots=True)
class _Held:
    """A storage as it becomes known. ``birth`` None: it is there before the step and after it."""

    nbytes: int
    role: Role
    birth: int | None
    death: int
    name: str


class Memory:
    """The tensors and storages of a Program whose nodes run in ``order``; ``tensor_of`` finds the tensor of an output.

    ``in_place`` are the additions that accumulate over a loop into what they started from.
    """

    def __init__(self, program: Program, order: Sequence[int], roles: Mapping[int, Role]) -> None:
        self.program = program
        self.tensors: list[Tensor] = []
        self.held: list[_Held] = []
        self.tensor_of: dict[Ref, int] = {}
        self.in_place, self._starts = accumulations(program)
        self.size = functools.cache(functools.partial(_size, program.hints))
        self._layout = functools.cache(self._laid_out)
        self._read = {ref for node in program.nodes for ref in node.inputs}
        self._kept: dict[object, int] = {}
        self._arrays: dict[object, int] = {}
        self._roles = roles
        self._position = {index: position for position, index in enumerate(order)}
        self._last_of_loop = _last_positions(program, order)
        for index in order:
            self._place(index)

    def of(self, ref: Ref) -> int:
        """Return the storage of an output."""
        return self.tensors[self.tensor_of[ref]].storage

    def storages(self, outputs: Collection[int], saved: Collection[int]) -> tuple[Storage, ...]:
        """Return the storages. ``outputs`` are those the step hands out, ``saved`` those that backward reads."""
        table = []
        for i, held in enumerate(self.held):
            role = Role.ACTIVATION if held.role is Role.TEMPORARY and i in saved else held.role
            role = Role.OUTPUT if held.birth is not None and i in outputs else role
            death = None if held.birth is None or role is Role.OUTPUT else held.death + 1
            table.append(Storage(held.nbytes, "cpu", role, held.birth, death, held.name))
        return tuple(table)

    def _place(self, index: int) -> None:
        node, position = self.program.nodes[index], self._position[index]
        for ref in node.inputs:
            if ref in self.tensor_of:
                self._use(self.of(ref), node, position)
        for output, spec in enumerate(node.outputs):
            shape, steps, size = self._layout(spec.shape or (), ITEM_BYTES[spec.dtype])
            storage = self._storage(index, node, output)
            if storage is None:
                storage = self._new(index, output, 0 if (node.type, output) in FLOWS else size)
            self._use(storage, node, position)
            self.tensor_of[Ref(index, output)] = len(self.tensors)
            self.tensors.append(Tensor(storage, spec.dtype, shape, steps))
        self._keep(index, node)

    def _laid_out(self, dims: Shape, itemsize: int) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """Return the sizes of a tensor, its strides and its bytes."""
        shape = tuple(map(self.size, dims))
        return shape, _contiguous(shape), math.prod(shape) * itemsize

    def _storage(self, index: int, node: Node, output: int) -> int | None:
        """Return the storage that an output shares, None for one of its own."""
        if index in self.in_place:
            return self.of(node.inputs[self.in_place[index]])
        if node.type in MERGES and output == 1:
            return None if Ref(index, 1) in self._read else self.of(Ref(index))
        if node.type in PASSES or (updates(node.type) and node.inputs):
            return next((self.of(ref) for ref in node.inputs if ref in self.tensor_of), None)
        if node.type in REDUCTIONS:
            source = self.program.nodes[node.inputs[0].node].outputs[node.inputs[0].output]
            return self.of(node.inputs[0]) if node.outputs[0].shape == source.shape else None
        if node.type == "TensorArrayGradV3" and output == 0:
            return self._arrays.get(self._handle(Ref(index)))
        if node.type == "IdentityN" and output < len(node.inputs):
            return self.of(node.inputs[output])
        if node.type == "StackPushV2" and len(node.inputs) > 1:
            return self.of(node.inputs[1])
        return self._listed(node, output)

    def _listed(self, node: Node, output: int) -> int | None:
        """Return the storage of what a stack, array or list keeps, or of its handle, where ``node`` hands it on."""
        if not node.inputs:
            return None
        if node.type in LISTS and output == 0:
            return self.of(node.inputs[0])
        taken = ("StackPopV2", "TensorArrayReadV3", "TensorListGetItem", "TensorListPopBack")
        return self._kept.get(self._handle(node.inputs[0])) if node.type in taken else None

    def _new(self, node: int, output: int, nbytes: int) -> int:
        kind = self.program.nodes[node].type
        lasts = kind in VARIABLES or kind in FEEDS or (kind == "Const" and node not in self._starts)
        role = Role.INPUT if kind in FEEDS else Role.BUFFER if lasts else Role.TEMPORARY
        position, name = self._position[node], self.program.nodes[node].name.replace("/", ".")
        birth, shown = (None, name * (output == 0)) if lasts else (position, "")
        self.held.append(_Held(nbytes, self._roles.get(node, role), birth, position, shown))
        return len(self.held) - 1

    def _use(self, storage: int, node: Node, position: int) -> None:
        """Prolong the life of a storage: one from outside a loop is resident until the loop ends."""
        held = self.held[storage]
        for loop in loop_chain(self.program, node.loop):
            first, last = self._last_of_loop[loop]
            if held.birth is not None and not first <= held.birth <= last:
                position = max(position, last)
        held.death = max(held.death, position)

    def _keep(self, index: int, node: Node) -> None:
        """Note what stacks and arrays keep: values as they are, or the copy that a scatter makes."""
        position = self._position[index]
        if node.type == "TensorArrayGradV3":
            self._arrays[self._handle(Ref(index))] = self.of(Ref(index))
        if len(node.inputs) > (value := KEEPS.get(node.type, len(node.inputs))):
            kept = self.of(node.inputs[value])
            if node.type == "TensorArrayScatterV3":
                tensor = self.tensors[self.tensor_of[node.inputs[value]]]
                kept = self._new(index, 1, tensor.nbytes)
            self._kept[self._handle(node.inputs[0])] = kept
        elif node.type == "TensorListFromTensor" and node.inputs:
            tensor = self.tensors[self.tensor_of[node.inputs[0]]]
            self._kept[self._handle(Ref(index))] = self._new(index, 1, tensor.nbytes)
        elif node.type in _TAKES and node.inputs:
            gathered = self._kept.get(self._handle(node.inputs[0]))
            if gathered is not None:
                self._use(gathered, node, position)
        elif node.type in NEXT and node.loop != OUTSIDE:
            self._use(self.of(node.inputs[0]), node, self._last_of_loop[node.loop][1])

    def _handle(self, ref: Ref) -> object:
        """Identify the stack or array of a handle by the op that made it; the gradients of an array are one array."""
        ref = self.program.source(ref, _HANDLES)
        node = self.program.nodes[ref.node]
        if node.type == "TensorArrayGradV3" and node.inputs:
            return self._handle(node.inputs[0]), node.attributes.get("source")
        return ref.node


def _size(hints: Mapping[str, int], expr: Expr) -> int:
    """Return an expression as a Size at the file's hints."""
    return sized(expr, int(compiled([expr])(hints)[0]) if expr.value is None else int(expr.value))


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    steps = list(itertools.accumulate(shape[::-1], lambda step, n: n * step, initial=1))
    return tuple(steps[-2::-1])


def _last_positions(program: Program, order: Sequence[int]) -> dict[int, tuple[int, int]]:
    """First and last position of every loop's body, the loops inside it included."""
    found: dict[int, tuple[int, int]] = {}
    for position, index in enumerate(order):
        for loop in loop_chain(program, program.nodes[index].loop):
            found[loop] = (found.get(loop, (position, position))[0], position)
    return found


def accumulations(program: Program) -> tuple[dict[int, int], set[int]]:
    """Additions that a loop carries and nothing else reads, each with the input that it can add into; and the nodes
    that make what they start from.

    ``Enter -> Merge -> Switch -> Add -> NextIteration -> Merge``: nobody needs the old sum once there is a new one.
    """
    reads = Counter(ref for node in program.nodes for ref in node.inputs)
    found: dict[int, int] = {}
    starts: set[int] = set()
    for index, node in enumerate(program.nodes):
        if node.type not in NEXT or reads[node.inputs[0]] != 1:
            continue
        add = node.inputs[0].node
        for slot, ref in enumerate(program.nodes[add].inputs if program.nodes[add].type in ADDS else ()):
            start = _start_of(program, reads, ref, index)
            if start is not None:
                found[add] = slot
                starts.add(start)
                break
    return found, starts


def _start_of(program: Program, reads: Counter[Ref], ref: Ref, back: int) -> int | None:
    """Return the node that makes what ``ref`` starts from, if ``back`` carries it and nobody else reads either."""
    while reads[ref] == 1 and program.nodes[ref.node].type in ("Identity", *SWITCHES):
        ref = program.nodes[ref.node].inputs[0]
    merge = program.nodes[ref.node]
    if merge.type not in MERGES or Ref(back) not in merge.inputs or reads[ref] != 1:
        return None
    first = merge.inputs[0]
    while reads[first] == 1 and program.nodes[first.node].type in ("Enter", "Identity"):
        first = program.nodes[first.node].inputs[0]
    alone = reads[first] == 1 and program.nodes[first.node].type not in VARIABLES | FEEDS | {"Enter", "Identity"}
    return first.node if alone else None
