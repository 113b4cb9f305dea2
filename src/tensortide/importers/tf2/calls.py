"""Names of nodes as the user wrote them, once calls are written out, and what of the called functions nobody reads."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from tensortide.importers.tensorflow.reading.functions import lowered
from tensortide.importers.tensorflow.reading.prune import pruned
from tensortide.importers.tensorflow.reading.raw import RawGraph

_SCOPES = re.compile(r"^(?:(?:Stateful)?PartitionedCall(?:_\d+)?/)+(?=.)")
"""Scopes of calls, which say nothing: functions call functions when a model is saved."""

_PRODUCTS = re.compile(r".*MatMul.*|Conv[23]D.*|DepthwiseConv.*|.*Einsum")


def renamed(graph: RawGraph, names: Mapping[str, str]) -> dict[str, str]:
    """Give nodes other names, where no node has them. Returns the names that changed."""
    taken, changed = set(graph.nodes), dict[str, str]()
    for old, new in names.items():
        if old in graph.nodes and new not in taken:
            changed[old] = new
            taken.add(new)
    nodes = [*graph.nodes.values()]
    for node in nodes:
        node.name = changed.get(node.name, node.name)
        node.inputs = [(changed.get(name, name), output) for name, output in node.inputs]
        node.control = [changed.get(name, name) for name in node.control]
    graph.nodes = {node.name: node for node in nodes}
    graph.variables = {changed.get(name, name): trained for name, trained in graph.variables.items()}
    return changed


def plain(name: str) -> str:
    """Return a name without the scopes of calls."""
    return _SCOPES.sub("", name)


def simplified(
    graph: RawGraph, roots: Sequence[str], *, unused: bool, shorten: Callable[[str], str] = plain
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Write the calls of a graph out and name its nodes without them, as ``shorten`` says.

    Returns the roots under their new names, with ``unused`` together with all nodes of the called functions that
    nothing reads; and a note on these.
    """
    lowered(graph)
    graph.functions = {}
    needed = dict.fromkeys(node.name for node in pruned(graph, roots))
    called = tuple(f"{root}/" for root in roots)
    left = [node for node in graph.nodes.values() if node.name not in needed and node.name.startswith(called)]
    products = Counter(node.type for node in left if _PRODUCTS.fullmatch(node.type))
    listed = ", ".join(f"{count} {kind}" for kind, count in products.items())
    note = f"ops whose results nobody reads, with {listed}: {'kept' if unused else 'left out (--unused keeps them)'}"
    kept = [*roots, *(node.name for node in left if unused)]
    for node in graph.nodes.values():
        frame = node.attributes.get("frame_name")
        if isinstance(frame, str):
            node.attributes["frame_name"] = shorten(frame)
    changed = renamed(graph, _shortened(graph, [*needed, *(node.name for node in left)], shorten))
    return tuple(changed.get(name, name) for name in kept), (note,) if products else ()


def _shortened(graph: RawGraph, names: Sequence[str], shorten: Callable[[str], str]) -> dict[str, str]:
    """Return other names of nodes; of several that are alike the later ones get numbers."""
    taken, found = set(graph.nodes), dict[str, str]()
    for name in names:
        short = shorten(name)
        if short != name:
            numbered = itertools.chain([short], (f"{short}_{i}" for i in itertools.count(1)))
            found[name] = next(n for n in numbered if n not in taken)
            taken.add(found[name])
    return found
