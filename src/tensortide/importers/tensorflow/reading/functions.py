"""Calls of library functions, written out: calls in place, ``While`` and ``If`` as the loops and switches of control
flow v1, so that one description of loops and conditionals serves both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from tensortide.importers.tensorflow.optypes import updates
from tensortide.importers.tensorflow.program import Attribute
from tensortide.importers.tensorflow.reading.raw import RawGraph, RawNode, raw_node
from tensortide.importers.tensorflow.signatures import output_index

CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall", "TPUPartitionedCall", "RemoteCall"})
WHILES = frozenset({"While", "StatelessWhile"})
IFS = frozenset({"If", "StatelessIf"})
CASES = frozenset({"Case", "StatelessCase"})
_READS = frozenset({"ReadVariableOp", "StatelessWhile", "StatelessIf", "StatelessCase", "PartitionedCall"})
"""Ops that are among the effects of a function, or may call functions, and change nothing."""

DEEPEST = 64
"""Functions that call each other deeper than this are taken to be recursive."""

Source: TypeAlias = tuple[str, int]


def lowered(graph: RawGraph) -> RawGraph:
    """Write calls, ``While`` and ``If`` of a graph out. Raises MetaGraphError for a function that is not in the
    library."""
    if not graph.functions and not any(node.type in CALLS | WHILES | IFS | CASES for node in graph.nodes.values()):
        return graph
    lowering, nodes = _Lowering(graph), graph.nodes
    graph.nodes = {}
    lowering.add(nodes.values(), 0)
    for node in graph.nodes.values():
        node.inputs = [lowering.direct(source) for source in node.inputs]
    return graph


class _Lowering:
    def __init__(self, graph: RawGraph) -> None:
        self.graph = graph
        self.results: dict[str, Sequence[Source]] = {}

    def direct(self, source: Source) -> Source:
        """Follow the output of a call to the node that computes it."""
        while source[0] in self.results and source[1] < len(self.results[source[0]]):
            source = self.results[source[0]][source[1]]
        return source

    def _return(self, call: RawNode, outputs: Sequence[Source], control: Sequence[str]) -> None:
        """Add a node of the call's name, for those that wait for it or fetch it."""
        self.results[call.name] = outputs
        self._new(call.name, "IdentityN", outputs, control)

    def add(self, nodes: Any, depth: int) -> None:
        """Add nodes to the graph, calls written out."""
        for node in nodes:
            if depth > DEEPEST:
                raise self.graph.fail("its functions call each other without end", node.name)
            if node.type in CALLS or node.type in self.graph.functions:
                self._call(node, self._function(node, "f") if node.type in CALLS else node.type, depth)
            elif node.type in WHILES:
                self._while(node, depth)
            elif node.type in IFS:
                self._conditional(node, ("else", "then"), self._arms(node), depth)
            elif node.type in CASES:
                arms = self._cases(node)
                self._conditional(node, [f"case_{i}" for i in range(len(arms))], arms, depth)
            else:
                self._new(node.name, node.type, node.inputs, node.control, node.attributes)

    def _new(
        self, name: str, kind: str, inputs: Sequence[Source], control: Sequence[str] = (),
        attributes: Mapping[str, Attribute] = {},
    ) -> Source:  # fmt: skip
        if name in self.graph.nodes:
            raise self.graph.fail("two nodes have this name", name)
        self.graph.nodes[name] = RawNode(name, kind, list(inputs), list(control), dict(attributes))
        return name, 0

    def _function(self, node: RawNode, attribute: str) -> str:
        name = node.attributes.get(attribute)
        if not isinstance(name, str) or name not in self.graph.functions:
            raise self.graph.fail(f"it calls the function {name!r}, which the file does not have", node.name)
        return name

    def _body(
        self, function: str, scope: str, arguments: Sequence[Source], control: Sequence[str], call: RawNode, depth: int
    ) -> list[Source]:
        """Write a function's body out under ``scope``; what it returns."""
        definition = self.graph.functions[function]
        names = [arg.name for arg in definition.signature.input_arg]
        if len(names) != len(arguments):
            raise self.graph.fail(f"{function} takes {len(names)} arguments and is given {len(arguments)}", call.name)
        known: dict[str, Source] = dict(zip(names, arguments, strict=True))
        types = {node.name: node.op for node in definition.node_def}

        def find(text: str) -> Source:
            name, *output = text.split(":")
            if name in types:
                index = int(output[-1]) if output and output[-1].isdecimal() else 0
                return f"{scope}/{name}", index + (output_index(types[name], output[0]) if output else 0)
            if name not in known:
                raise self.graph.fail(f"{function} has no node {name!r}", call.name)
            return known[name]

        nodes = [raw_node(stored, call.attributes) for stored in definition.node_def]
        for node, stored in zip(nodes, definition.node_def, strict=True):
            node.name = f"{scope}/{node.name}"
            node.inputs = [find(text) for text in stored.input if not text.startswith("^")]
            node.control = [f"{scope}/{name}" for name in node.control if name in types]
            node.control += [] if node.inputs else control
        self.add(nodes, depth + 1)
        return [find(source) for source in _returned(definition)]

    def _call(self, node: RawNode, function: str, depth: int) -> None:
        outputs = self._body(function, node.name, node.inputs, node.control, node, depth)
        effects = _effects(self.graph.functions[function])
        self._return(node, outputs, [*node.control, *(f"{node.name}/{name}" for name in effects)])

    def _arms(self, node: RawNode) -> list[str]:
        """Return the functions of an If, that of False first."""
        return [self._function(node, f"{side}_branch") for side in ("else", "then")]

    def _cases(self, node: RawNode) -> list[str]:
        """Return the functions of a Case."""
        names = node.attributes.get("branches")
        if not isinstance(names, tuple) or not names:
            raise self.graph.fail("it has no branches", node.name)
        return [self._function(RawNode(node.name, node.type, [], [], {"f": name}), "f") for name in names]

    def _conditional(self, node: RawNode, arms: Sequence[str], functions: Sequence[str], depth: int) -> None:
        """Write a choice out: its predicate switches the arguments to one arm, and the arms meet again."""
        if not node.inputs:
            raise self.graph.fail("it has no predicate", node.name)
        predicate, *arguments = node.inputs
        kind = "Switch" if node.type in IFS else "_SwitchN"
        pivot = self._new(f"{node.name}/pivot", kind, (predicate, predicate), node.control)
        switched = [
            self._new(f"{node.name}/Switch_{i}", kind, (argument, predicate), node.control)
            for i, argument in enumerate(arguments)
        ]
        branches = []
        for side, (name, function) in enumerate(zip(arms, functions, strict=True)):
            arm = self._new(f"{node.name}/{name}", "Identity", ((pivot[0], side),))[0]
            given = [(switch, side) for switch, _ in switched]
            branches.append(self._body(function, f"{node.name}/{name}", given, (arm,), node, depth))
        if len({*map(len, branches)}) > 1:
            raise self.graph.fail("its branches return different numbers of tensors", node.name)
        merged = [
            self._new(f"{node.name}/Merge_{i}", "Merge", pair) for i, pair in enumerate(zip(*branches, strict=True))
        ]
        self._return(node, merged, node.control)

    def _while(self, node: RawNode, depth: int) -> None:
        name, body, condition = node.name, self._function(node, "body"), self._function(node, "cond")
        kept = self._invariant(body)
        carried = [i for i in range(len(node.inputs)) if i not in kept]
        if not carried:
            raise self.graph.fail("it is a loop without a variable that changes", name)
        inside = []
        for i, source in enumerate(node.inputs):
            constant: dict[str, Attribute] = {"frame_name": name, "is_constant": i in kept}
            enter = self._new(f"{name}/Enter_{i}", "Enter", (source,), node.control, constant)
            back = f"{name}/NextIteration_{i}", 0
            inside.append(enter if i in kept else self._new(f"{name}/Merge_{i}", "Merge", (enter, back)))
        (test, *_) = self._body(condition, f"{name}/cond", inside, [inside[carried[0]][0]], node, depth)
        pivot = self._new(f"{name}/LoopCond", "LoopCond", (test,))
        exits = list(node.inputs)
        for i in carried:
            exits[i] = self._new(f"{name}/Switch_{i}", "Switch", (inside[i], pivot))
            inside[i] = exits[i][0], 1
        results = self._body(body, f"{name}/body", inside, (pivot[0],), node, depth)
        for i in carried:
            self._new(f"{name}/NextIteration_{i}", "NextIteration", (results[i],))
        for i in carried:
            exits[i] = self._new(f"{name}/Exit_{i}", "Exit", (exits[i],))
        self._return(node, exits, node.control)

    def _invariant(self, body: str) -> set[int]:
        """Return the loop variables that the body returns as they came."""
        definition = self.graph.functions[body]
        passes = {node.name: node.input[0] for node in definition.node_def if node.op == "Identity" and node.input}
        sources = _returned(definition)
        while any(source.split(":")[0] in passes for source in sources):
            sources = [passes.get(source.split(":")[0], source) for source in sources]
        given = [arg.name for arg in definition.signature.input_arg]
        return {i for i, (name, source) in enumerate(zip(given, sources, strict=False)) if name == source}


def _effects(definition: Any) -> list[str]:
    """Return the nodes of a function's body that run though nothing may read them: those it says, and updates.

    TensorFlow prunes everything else whose result is not returned.
    """
    said = {entry.value for entry in definition.control_ret}
    return [
        node.name
        for node in definition.node_def
        if node.op not in _READS and (node.name in said or updates(node.op) or node.op in CALLS | WHILES | IFS | CASES)
    ]


def _returned(definition: Any) -> list[str]:
    """Return the tensors of a function's body that it returns."""
    returned = {entry.key: entry.value for entry in definition.ret}
    return [returned.get(arg.name, arg.name) for arg in definition.signature.output_arg]
