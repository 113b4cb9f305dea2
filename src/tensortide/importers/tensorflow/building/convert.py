"""Conversion of a parsed graph file to a Graph: ops in execution order, storages, phases, scopes, loops."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from tensortide.collector import no_collection
from tensortide.graph.model import TENSOR, Call, Graph, Loop, Meta, Module, Named, Op, Phase, Role, Value
from tensortide.graph.validate import validate
from tensortide.importers.tensorflow.building.arrange import branches, order, phases, variable_roles
from tensortide.importers.tensorflow.building.storing import Memory
from tensortide.importers.tensorflow.optypes import FEEDS, updates
from tensortide.importers.tensorflow.program import OUTSIDE, Attribute, Constant, Node, Program, Ref
from tensortide.importers.tensorflow.signatures import operands

TAGS = (
    {"StackPushV2": ("push",), "StackPopV2": ("pop",)}
    | dict.fromkeys(["TensorArrayWriteV3", "TensorListSetItem"], ("write",))
    | dict.fromkeys(["TensorArrayGatherV3", "TensorArrayConcatV3", "TensorListStack"], ("gather",))
)
"""Tags of ops that use stacks and arrays, see ``graph.unroll``."""

_STACKS = frozenset({"StackPushV2", "StackPopV2"})
"""Ops that change the stack that is their first input: they keep their order."""

_FEW = 16
"""Stored tensors of up to so many elements are shown among the arguments of their Const."""


@no_collection()
def graph_of_program(program: Program, name: str = "") -> Graph:
    """Return the Graph of all nodes of ``program``.

    Op types are called ``tf.<Type>``; an op's ``label`` is its node's name. Sizes carry the file's expressions. What
    passes a tensor on (Identity, Switch, Reshape, ...) shares its storage; an addition that a loop accumulates
    writes into what it started from. Raises MetaGraphError for a graph without an order to run in.
    """
    return _Conversion(program).graph(name)


class _Conversion:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.order = order(program)
        self.roles = variable_roles(program)
        self.phases = phases(program, self.order)
        self.memory = Memory(program, self.order, self.roles)
        self.calls: dict[str, tuple[int, Call]] = {}
        self.modules: dict[str, int] = {}

    def graph(self, name: str) -> Graph:
        program, memory = self.program, self.memory
        branch_of, branch_table = branches(program, self.order)
        ops = tuple(self._op(index, branch_of.get(index, OUTSIDE)) for index in self.order)
        outputs = self._handed_out()
        given = {memory.tensors[tensor].storage for tensor in outputs.values()}
        graph = Graph(
            ops=ops,
            calls=tuple(call for _, call in self.calls.values()),
            tensors=tuple(memory.tensors),
            storages=memory.storages(given, self._saved(ops)),
            modules=tuple(Module(path, "scope") for path in self.modules),
            branches=branch_table,
            named=tuple(self._named(outputs)),
            meta=Meta(
                workload=name,
                framework=f"TensorFlow {program.version} graph".replace("  ", " "),
                captured_on="file",
                assumptions=(*program.notes, *program.guesses),
                decisive=program.guesses,
            ),
            loops=self._loops(),
        )
        validate(graph)
        return graph

    def _op(self, index: int, branch: int) -> Op:
        node = self.program.nodes[index]
        refs = [ref for ref in node.inputs if not self.program.is_back_edge(node, ref)]
        return Op(
            self._call(index, node, len(refs)),
            tuple(self.memory.tensor_of[ref] for ref in refs),
            tuple(self.memory.tensor_of[Ref(index, k)] for k in range(len(node.outputs))),
            self.phases[index],
            self._module(node.name.rpartition("/")[0]),
            branch=branch,
            loop=OUTSIDE if node.type == "Const" else node.loop,  # a constant is there once
            label=node.name,
        )

    def _call(self, index: int, node: Node, count: int) -> int:
        given = operands(node.type, count)
        mutated: tuple[int, ...] = (0,) if node.type in _STACKS and count else ()
        if index in self.memory.in_place:
            mutated = (self.memory.in_place[index],)
        elif updates(node.type) and node.inputs:
            mutated = (0, *self._slots(node))
        outputs = len(node.outputs)
        returns: Value = TENSOR if outputs == 1 else (TENSOR,) * outputs if outputs else None
        tags = TAGS.get(node.type, ())
        call = Call(f"tf.{node.type}", (*given, *_attributes(node)), len(given), mutated, returns, tags)
        return self.calls.setdefault(repr(call), (len(self.calls), call))[0]

    def _slots(self, node: Node) -> tuple[int, ...]:
        """Return the other inputs that an optimizer's step writes: its slots."""
        if "Apply" not in node.type:
            return ()
        roles = [self.memory.held[self.memory.of(ref)].role for ref in node.inputs]
        return tuple(i for i in range(1, len(roles)) if roles[i] is Role.OPTIMIZER_STATE)

    def _module(self, scope: str) -> int:
        path = scope.replace(".", "_").replace("/", ".")
        return self.modules.setdefault(path, len(self.modules)) if path else OUTSIDE

    def _loops(self) -> tuple[Loop, ...]:
        """Return the table of loops, in which outer ones come first as in the Program."""
        carried: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for index, node in enumerate(self.program.nodes):
            for ref in node.inputs:
                if self.program.is_back_edge(node, ref):
                    carried[node.loop].append((self.memory.tensor_of[Ref(index)], self.memory.tensor_of[ref]))
        unknown = set(self.program.unknown_trips)
        return tuple(
            Loop(
                loop.name, loop.parent, self.memory.size(loop.trips), loop.gradient_of, tuple(carried[i]),
                assumed=not unknown.isdisjoint(loop.trips.symbols),
            )
            for i, loop in enumerate(self.program.loops)
        )  # fmt: skip

    def _saved(self, ops: Sequence[Op]) -> set[int]:
        """Storages that forward makes and backward reads."""
        tensors = self.memory.tensors
        made = {tensors[t].storage for op in ops if op.phase is Phase.FORWARD for t in op.outputs}
        return {tensors[t].storage for op in ops if op.phase is Phase.BACKWARD for t in op.inputs} & made

    def _handed_out(self) -> dict[str, int]:
        """Return the tensors that the step's roots give: none that exists before the step, updated or not."""
        by_name = {node.name: i for i, node in enumerate(self.program.nodes)}
        found: dict[str, int] = {}
        for name, _, output in (root.partition(":") for root in self.program.roots):
            count = len(self.program.nodes[by_name[name]].outputs) if name in by_name else 0
            for k in [int(output)] if output and count else range(count):
                ref = Ref(by_name[name], k)
                if self.memory.held[self.memory.of(ref)].birth is not None:
                    found[f"{name}:{k}"] = self.memory.tensor_of[ref]
        return found

    def _named(self, outputs: dict[str, int]) -> list[Named]:
        named: list[Named] = []
        for index, node in enumerate(self.program.nodes):
            role = Role.INPUT if node.type in FEEDS else self.roles.get(index)
            if role is None:
                continue
            for k in range(len(node.outputs)):
                path, tensor = node.name.replace("/", "."), self.memory.tensor_of[Ref(index, k)]
                named.append(Named(f"{path}:{k}" if k else path, role, tensor, role is Role.PARAMETER))
        return named + [Named(name.replace("/", "."), Role.OUTPUT, tensor) for name, tensor in outputs.items()]


def _attributes(node: Node) -> list[tuple[str, Value]]:
    """Return the attributes of a node that are plain values; a small stored tensor is the tuple of its values."""
    found: list[tuple[str, Value]] = []
    for name, value in sorted(node.attributes.items()):
        if name.startswith("_"):
            continue
        if isinstance(value, Constant):
            if value.values is not None and len(value.values) <= _FEW:
                found.append((name, tuple(map(_value, value.values))))
        else:
            found.append((name, _value(value)))
    return found


def _value(value: Attribute) -> Value:
    if isinstance(value, bytes):
        return repr(value)
    if isinstance(value, Constant):
        return f"{value.dtype}{list(value.shape)}"
    return tuple(map(_value, value)) if isinstance(value, tuple) else value
