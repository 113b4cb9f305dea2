"""Files of Chakra: messages with their lengths, the metadata first; what is wrong with the nodes among each other."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from tensortide.errors import TimesError
from tensortide.importers.chakra.groups import encoded, groups_path, read_groups, strangers
from tensortide.importers.chakra.messages import (
    Chakra,
    Node,
    NodeType,
    decode_metadata,
    decode_node,
    encode_metadata,
    encode_node,
)
from tensortide.importers.protobuf import WireError, read_varint, varint
from tensortide.timing.kineto import read_bytes
from tensortide.write import write_files

SUFFIX = ".et"


def read_chakra(path: str | os.PathLike[str]) -> Chakra:
    """Read a trace, and the file of process groups beside it if there is one.

    Raises TimesError, which names the file and the message, if one is none or is damaged.
    """
    data = read_bytes(path)
    nodes: list[Node] = []
    try:
        messages = _messages(data)
        version, attributes = decode_metadata(next(messages))
        nodes.extend(map(decode_node, messages))
    except StopIteration:
        raise TimesError(f"{path} is no Chakra trace: it is empty") from None
    except WireError as error:
        where = f"after {len(nodes)} nodes"
        raise TimesError(f"{path} is no Chakra trace, or a damaged one: {where}: {error}") from error
    return Chakra(version, tuple(nodes), attributes, read_groups(groups_path(path)))


def write_chakra(trace: Chakra, path: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Write ``trace``, and beside it its process groups if it has some: all or nothing. Raises OutputError."""
    messages = [encode_metadata(trace), *map(encode_node, trace.nodes)]
    content = {Path(path): b"".join(varint(len(message)) + message for message in messages)}
    return write_files(content | ({groups_path(path): encoded(trace.groups)} if trace.groups else {}))


def _messages(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size, at = read_varint(data, at)
        if at + size > len(data):
            raise WireError("the file ends within a message")
        yield data[at : at + size]
        at += size


# -- nodes among each other -------------------------------------------------------------------------


def ordered(trace: Chakra, path: str) -> list[Node]:
    """The nodes in an order in which each comes after those that it waits for; else in that of the file.

    Raises TimesError for an id that two nodes have, for a node that waits for one that is not there, for nodes that
    wait for each other, for a collective that nothing before it in the file holds back, and, where there is a file of
    process groups, for a node of a group that it does not have.
    """
    nodes = {node.id: node for node in trace.nodes}
    if len(nodes) < len(trace.nodes):
        twice = next(node.id for i, node in enumerate(trace.nodes) if nodes[node.id] is not trace.nodes[i])
        raise TimesError(f"{path}: two nodes have the id {twice}")
    for node in trace.nodes:
        for other in (*node.control, *node.data):
            if other not in nodes:
                raise TimesError(f"{path}: node {node.id} ({node.name}) waits for node {other}, which is not there")
    result = _sorted(trace.nodes)
    if len(result) < len(nodes):
        done = {node.id for node in result}
        cycle = [node for node in trace.nodes if node.id not in done]
        names = ", ".join(f"{node.id} ({node.name})" for node in cycle[:4])
        raise TimesError(f"{path}: {len(cycle)} nodes wait for each other, in a cycle or behind one: {names}")
    if loose := _dangling(trace.nodes):
        names = ", ".join(f"{node.id} ({node.name})" for node in loose[:4])
        raise TimesError(
            f"{path}: {len(loose)} collectives wait for nothing, though nodes precede them: {names}.\n"
            "They would start at once. Give them the dependencies that the run had."
        )
    if trace.groups and (strange := list(strangers(trace.nodes, trace.groups))):
        node = strange[0]
        raise TimesError(
            f"{path}: node {node.id} ({node.name}) is of process group {node.attribute('pg_name')!r}, which "
            f"{groups_path(path)} does not have"
        )
    return result


def orphans(trace: Chakra) -> list[Node]:
    """Nodes that wait for nothing and that nothing waits for, where there are others."""
    waited = {other for node in trace.nodes for other in (*node.control, *node.data)}
    alone = [
        n for n in trace.nodes if not n.control and not n.data and n.id not in waited and n.type != NodeType.METADATA
    ]
    return alone if len(trace.nodes) > 1 else []


def _dangling(nodes: Sequence[Node]) -> list[Node]:
    first = next((i for i, node in enumerate(nodes) if node.type is NodeType.COMPUTE), len(nodes))
    return [n for n in nodes[first:] if n.type is NodeType.COLLECTIVE and not n.control and not n.data]


def _sorted(nodes: Sequence[Node]) -> list[Node]:
    """Topological order, as near to that of ``nodes`` as it can be; nodes of a cycle and behind it are left out."""
    import heapq

    place = {node.id: i for i, node in enumerate(nodes)}
    waits = [len({*node.control, *node.data}) for node in nodes]
    after: list[list[int]] = [[] for _ in nodes]
    for i, node in enumerate(nodes):
        for other in {*node.control, *node.data}:
            after[place[other]].append(i)
    ready = [i for i, count in enumerate(waits) if not count]
    result: list[Node] = []
    while ready:
        i = heapq.heappop(ready)
        result.append(nodes[i])
        for other in after[i]:
            waits[other] -= 1
            if not waits[other]:
                heapq.heappush(ready, other)
    return result
