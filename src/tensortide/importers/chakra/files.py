"""Files of Chakra: messages with their lengths, the metadata first; what is wrong with the nodes among each other."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec

from tensortide.errors import TimesError
from tensortide.gzipped import contents
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
from tensortide.write import write_files

SUFFIX = ".et"


def read_chakra(path: str | os.PathLike[str]) -> Chakra:
    """Read a trace, and the file of process groups beside it if there is one.

    Raises TimesError, which names the file and the message, if one is none or is damaged.
    """
    data = contents(path, TimesError)
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


# --- process groups ------------------------------------------------------------------------------------

Groups: TypeAlias = Mapping[int, tuple[int, ...]]
"""The ranks of each group by its number; 0 is the group of all ranks."""

Natural: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


def groups_path(trace: str | os.PathLike[str]) -> Path:
    """The file beside a trace, one for all ranks: ``x.groups.json`` of ``x.0.et``.

    Examples:
        >>> groups_path("run/x.12.et").name
        'x.groups.json'
    """
    path = Path(trace)
    return path.with_name(re.sub(r"(\.[0-9]+)?(\.et)?(\.gz)?$", "", path.name) + ".groups.json")


def read_groups(path: Path) -> Groups:
    """Read the groups; none where there is no file. Raises TimesError, which names the file, if it is damaged."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=dict[Natural, tuple[Natural, ...]])
    except FileNotFoundError:
        return {}
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TimesError(f'{path} is no file of process groups, {{"1": [0, 1]}}: {error}') from error
    except OSError as error:
        raise TimesError(f"cannot read {path}: {error.strerror or error}") from error
    for number, ranks in found.items():
        if not ranks or len(set(ranks)) < len(ranks):
            raise TimesError(f"{path}: group {number} has {'a rank twice' if ranks else 'no ranks'}")
    return found


def encoded(groups: Groups) -> bytes:
    """The content of the file."""
    return json.dumps({str(number): list(ranks) for number, ranks in groups.items()}).encode()


def strangers(nodes: Sequence[Node], groups: Groups) -> Iterator[Node]:
    """Nodes of a group that ``groups`` does not have; without a name or by 0 they are of all ranks."""
    for node in nodes:
        name = node.attribute("pg_name")
        if isinstance(name, str) and name not in ("", "0") and not (name.isdecimal() and int(name) in groups):
            yield node
