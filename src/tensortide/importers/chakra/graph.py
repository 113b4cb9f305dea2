"""A Chakra trace as a Graph, and a Graph as a Chakra trace."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from tensortide.cost import Resolver, count
from tensortide.errors import TimesError
from tensortide.graph.builder import GraphBuilder
from tensortide.graph.collectives import COLLECTIVES
from tensortide.graph.communication import find, group_of, kind_of, payload_bytes
from tensortide.graph.handles import Handle, Out
from tensortide.graph.model import Graph, OpView, Phase
from tensortide.graph.unroll import unrolled
from tensortide.importers.chakra.files import ordered, orphans
from tensortide.importers.chakra.messages import Attribute, Chakra, CommType, Node, NodeType
from tensortide.importers.imported import Imported
from tensortide.recorder import resolver
from tensortide.timing.durations import Durations
from tensortide.timing.standins import from_samples

VERSION = "0.0.4"
NANOS = "duration_nanos"
OUTPUT = "output_bytes"
"""Attributes of ours: the exact duration, and the bytes of what a node makes."""
AMOUNTS = (OUTPUT, NANOS, "num_ops", "tensor_size", "comm_size")
MOST = 1 << 60
"""Attributes that are no less than 0, and less than this."""
KIND, SOURCE = "durations_kind", "durations_source"
"""Attributes of ours for the whole trace: how the durations are known, and what they rest on."""

_KEPT = ("num_ops", "tensor_size", "comm_type", "comm_size", "pg_name", "comm_src", "comm_dst", "comm_tag")


def imported(trace: Chakra, path: str) -> Imported:
    """The step of a trace: an op for each node but metadata, and a tensor from it to those that wait for its data.

    Raises TimesError for nodes that contradict each other (see ``ordered``), and for sizes and times that cannot be.
    """
    nodes = [node for node in ordered(trace, path) if node.type is not NodeType.METADATA]
    _check(nodes, path)
    place = {node.id: i for i, node in enumerate(nodes)}
    sizes = [_made_bytes(node) for node in nodes]
    unknown = tuple(i for i, size in enumerate(sizes) if size is None)
    builder = GraphBuilder(path, framework="chakra", device="unknown")
    made: list[Handle] = []
    with builder.phase(Phase.OTHER):
        for node, size in zip(nodes, sizes, strict=True):
            waits = [made[i] for i in dict.fromkeys(place[other] for other in node.data if other in place)]
            out, given = Out((size or 0,), "uint8"), dict(_kept(node))
            made.append(builder.op(_name(node), *waits, out=out, arguments=given, label=node.name))
    builder.assume(*_assumed(trace, len(unknown)))
    groups = {str(number): ranks for number, ranks in trace.groups.items()}
    graph = builder.build()
    graph = replace(graph, meta=replace(graph.meta, groups=groups))
    names = tuple(node.name for node in nodes)
    return Imported(graph, _durations(graph, nodes, path, trace.attributes), kernels=names, unknown=unknown)


def _check(nodes: Sequence[Node], path: str) -> None:
    for node in nodes:
        for name in AMOUNTS:
            value = node.attribute(name)
            if isinstance(value, (int, float)) and not 0 <= value < MOST:
                raise TimesError(f"{path}, node {node.id} ({node.name}): {name} is {value}: it is 0 to 2**60")


def _assumed(trace: Chakra, unknown: int) -> Iterator[str]:
    yield "a tensor stands for each dependency, and lives until its last use: a Chakra trace has no storages"
    if unknown:
        yield f"{unknown:,} nodes do not say how many bytes they make: these count 0"
    if alone := orphans(trace):
        named = ", ".join(f"{node.id} ({node.name})" for node in alone[:4])
        yield f"{len(alone):,} nodes wait for nothing, and nothing waits for them: {named}"


def _made_bytes(node: Node) -> int | None:
    for name in (OUTPUT, "comm_size"):
        value = node.attribute(name)
        if isinstance(value, int):
            return value
    return None


def _name(node: Node) -> str:
    kind, name = node.type.name.lower(), re.sub(r"\W+", "_", node.name) or "default"
    comm = node.attribute("comm_type")
    if node.type is NodeType.COLLECTIVE and isinstance(comm, int) and comm in {kind.value for kind in CommType}:
        kind = CommType(comm).name.lower()
    elif node.type is NodeType.COLLECTIVE and comm is None and (row := find(node.name)) is not None:
        kind = row.name
    return f"chakra.{kind}.{name}"


def _kept(node: Node) -> Iterator[tuple[str, bool | int | float | str]]:
    """List the attributes that stay arguments."""
    for name in _KEPT:
        value = node.attribute(name)
        if isinstance(value, bool | int | float | str):
            yield name, value


def _durations(graph: Graph, nodes: list[Node], path: str, attributes: Sequence[Attribute]) -> Durations | None:
    known = [_duration_ns(node) for node in nodes]
    if not any(known):
        return None
    given = {each.name: each.value for each in attributes if isinstance(each.value, str)}
    origin = given.get(SOURCE, "")
    found = from_samples(
        graph,
        [[] if ns is None else [ns] for ns in known],
        missing=lambda index: "the trace has no duration of it",
        source=f"{path}, a Chakra trace{f': {origin}' * bool(origin)}",
        resolver=resolver,
        how="trace",
        clock="unknown",
    )
    if given.get(KIND) != "estimated" or found.unknown:
        return found
    return replace(found, source=f"{origin}, in {path}", kind="estimated", measurement=None)


def _duration_ns(node: Node) -> int | None:
    exact = node.attribute(NANOS)
    return exact if isinstance(exact, int) else node.duration_us * 1000 or None


# -- writing ----------------------------------------------------------------------------------------


def chakra_of(graph: Graph, durations: Durations | None = None, *, resolver: Resolver | None = None) -> Chakra:
    """The trace of one rank: a node for each op but views, which waits for the ops that it depends on.

    Durations are rounded up to whole microseconds, 1 at least; the attribute ``duration_nanos`` has them exactly. A
    collective that depends on nothing waits for the op before it, so that it does not start with the step.

    Raises GraphError if the durations are of another graph.
    """
    graph = unrolled(graph)
    if durations is not None:
        durations.check(graph)
    costs = count(graph, resolver=resolver).costs
    before = _dependencies(graph)
    kept = [op for op in graph if not op.is_view]
    ids = {op.index: number for number, op in enumerate(kept, 1)}
    starts = [0] * len(graph) if durations is None else [0, *itertools.accumulate(durations.ns)]
    groups = _groups(graph)
    nodes: list[Node] = []
    for op in kept:
        cost, ns = costs[op.index], None if durations is None else durations.ns[op.index]
        data = tuple(ids[other] for other in before[op.index])
        kind = kind_of(op.name)
        attributes = [Attribute("is_cpu_op", "bool", False)]
        if kind is None:
            if cost.cost is not None:
                attributes.append(Attribute("num_ops", "int64", int(cost.cost.flops)))
            attributes.append(Attribute("tensor_size", "int64", int(cost.nbytes)))
        else:
            attributes += _communication(op, kind, groups)
        attributes.append(Attribute(OUTPUT, "int64", sum(int(tensor.region_bytes) for tensor in op.outputs)))
        attributes += [] if ns is None else [Attribute(NANOS, "int64", ns)]
        waits = (ids[op.index] - 1,) if kind is not None and not data and nodes else ()
        us = 0 if ns is None else max(1, -(-ns // 1000))
        name, start = op.name.removesuffix(".default"), starts[op.index] // 1000
        found = tuple(attributes)
        nodes.append(Node(ids[op.index], name, _type(op, kind), waits, data, start, us, attributes=found))
    facts = [Attribute("workload", "string", graph.meta.workload)]
    if durations is not None:
        facts += [Attribute(KIND, "string", durations.kind), Attribute(SOURCE, "string", durations.source)]
    return Chakra(VERSION, tuple(nodes), tuple(facts), dict(enumerate(groups.values())))


def _type(op: OpView, kind: str | None) -> NodeType:
    if kind is None:
        return NodeType.COMPUTE
    if COLLECTIVES[kind].joins_two:
        return NodeType.RECEIVE if "recv" in op.name else NodeType.SEND
    return NodeType.COLLECTIVE


def _communication(op: OpView, kind: str, groups: Mapping[str, tuple[int, ...]]) -> Iterator[Attribute]:
    """Return what simulators read of a communication op. The step is that of rank 0; groups are numbered in their
    order."""
    row = COLLECTIVES[kind]
    if not row.joins_two:
        yield Attribute("comm_type", "int64", int(CommType[row.chakra.split()[0]]))
    yield Attribute("comm_size", "int64", payload_bytes(op))
    name = group_of(op)
    yield Attribute("pg_name", "string", str([*groups].index(name)) if name in groups else "")
    if not row.joins_two:
        return
    peer, tag = (op.arguments.get(key) for key in ("src" if "recv" in op.name else "dst", "tag"))
    if isinstance(peer, int):  # a receive from any rank has none
        ranks = groups.get(name, ())
        other = ranks[peer] if 0 <= peer < len(ranks) else peer
        ends = (other, 0) if "recv" in op.name else (0, other)
        yield from (Attribute(key, "int32", rank) for key, rank in zip(("comm_src", "comm_dst"), ends, strict=True))
    if isinstance(tag, int):
        yield Attribute("comm_tag", "int32", tag)


def _groups(graph: Graph) -> dict[str, tuple[int, ...]]:
    """The process groups that ops of ``graph`` use, and before them that of all ranks, by name."""
    used = {group_of(op) for op in graph if kind_of(op.name) is not None}
    known = graph.meta.groups
    return {name: ranks for i, (name, ranks) in enumerate(known.items()) if name in used or (i == 0 and used)}


def _dependencies(graph: Graph) -> list[tuple[int, ...]]:
    """For each op those that it depends on, with those of views in the place of views."""
    result: list[tuple[int, ...]] = []
    views = [op.is_view for op in graph]
    for earlier in graph.index.dependencies:
        through = (result[other] if views[other] else (other,) for other in earlier)
        result.append(tuple(sorted(set(itertools.chain.from_iterable(through)))))
    return result
