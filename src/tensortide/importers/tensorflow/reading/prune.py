"""The nodes of a file that are its training step: pruned from its roots, or prepared for the ``catamount`` table.

The ``catamount`` preparation drops savers and variable initializers, recognised by structure, and what the caller's
patterns name; control edges are ignored and nothing else is removed, dead gradients and metrics included.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from tensortide.importers.tensorflow.optypes import READERS, VARIABLES, updates
from tensortide.importers.tensorflow.reading.raw import RawGraph, RawNode, node_name

_MODEL = "Sum_1", "Size_1", "Exp_1", "truediv_2", "truediv_3"
_WORD_LM = "Recurrent_1_lstm_3", "Recurrent_2_lstm_3", "FullSoftmaxLoss_1_3", "Collapse_1", "Embedding_1_3", "Labels_1"
_WORD2VEC = "NceLoss_1_3", "Collapse_1", "Embedding_1_3", "Labels_1", "SkipGramSampler_1", "Mask_1"


def _model(scopes: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    return (f"Model/(?:{'|'.join(scopes)})/.*", f"Model/(?:{'|'.join(names)})")


PRESETS: dict[str, tuple[str, ...]] = {
    "none": (),
    "word_lm": _model((*_WORD_LM, "Mask_1"), (*_MODEL, "Cast_2", "Cast_3")),
    "word2vec": _model(_WORD2VEC, (*_MODEL, "Cast_1")),
    "resnet": (".*(?:InferenceTower|InferenceRunner)/.*", "MergeAllSummariesRunWithOp/Merge/MergeSummary"),
}
"""Nodes to remove beside savers and initializers, by model: patterns that match whole names. They drop the inference
copy of a training graph, as the published numbers of these models assume."""

SAVERS = frozenset({"SaveV2", "RestoreV2", "Save", "SaveSlices", "Restore", "RestoreSlice", "MergeV2Checkpoints"})
ASSIGNS = frozenset({"Assign", "AssignVariableOp"})
_FILE_NAMES = frozenset({"Const", "Identity", "PlaceholderWithDefault", "StringJoin", "ShardedFilename"})
_SUMMARIES = re.compile(r".*Summary.*")


def consumers(nodes: Iterable[RawNode]) -> dict[str, list[RawNode]]:
    """Return the nodes that read an output of each node."""
    readers: dict[str, list[RawNode]] = defaultdict(list)
    for node in nodes:
        for name, _ in node.inputs:
            readers[name].append(node)
    return readers


def prepared(graph: RawGraph, drop: Iterable[str]) -> list[RawNode]:
    """Return the nodes that the ``catamount`` table counts, in the file's order, without control edges."""
    readers = consumers(graph.nodes.values())
    removed = _savers(graph, readers) | _initializers(graph)
    _remove_unread(graph, removed, readers)
    try:
        patterns = [re.compile(pattern) for pattern in drop]
    except re.error as error:
        raise graph.fail(f"{error.pattern!r} is no regular expression: {error}") from None
    for name in graph.nodes:
        if any(pattern.fullmatch(name) for pattern in patterns):
            removed.add(name)
    kept = [node for node in graph.nodes.values() if node.name not in removed]
    for node in kept:
        node.control = []
        node.inputs = [(name, output) for name, output in node.inputs if name not in removed]
    return kept


def _savers(graph: RawGraph, readers: dict[str, list[RawNode]]) -> set[str]:
    """Savers and their file names: text constants and what passes those on."""
    removed = {n.name for n in graph.nodes.values() if n.type in SAVERS}
    names = [name for saver in removed for name, _ in graph.nodes[saver].inputs[:1] if name in graph.nodes]
    while names:
        node = graph.nodes[names.pop()]
        if node.name not in removed and node.type in _FILE_NAMES:
            removed.add(node.name)
            names += [name for name, _ in node.inputs if name in graph.nodes]
            names += [reader.name for reader in readers[node.name]]
    return removed


def _initializers(graph: RawGraph) -> set[str]:
    """Assignments of first or restored values: those that say so in a collection, and those that depend on no state
    and on nothing that is fed."""
    return {
        node.name
        for node in graph.nodes.values()
        if node.type in ASSIGNS and (node.name in graph.initializers or _is_constant(graph, node))
    }


def _is_constant(graph: RawGraph, assign: RawNode) -> bool:
    seen: set[str] = set()
    pending = assign.inputs[1:]
    while pending:
        node = graph.nodes.get(pending.pop()[0])
        if node is not None and node.name not in seen:
            if node.type in VARIABLES or "Placeholder" in node.type or node.type.startswith(("Queue", "Iterator")):
                return False
            seen.add(node.name)
            pending += node.inputs if node.type not in SAVERS else []
    return True


def _remove_unread(graph: RawGraph, removed: set[str], readers: dict[str, list[RawNode]]) -> None:
    """Add to ``removed`` what only removed nodes read."""
    pending = [name for gone in removed for name, _ in graph.nodes[gone].inputs]
    while pending:
        name = pending.pop()
        node = graph.nodes.get(name)
        if node is None or name in removed or node.type in VARIABLES:
            continue
        if all(reader.name in removed for reader in readers[name]):
            removed.add(name)
            pending += [i for i, _ in node.inputs]


def step_roots(graph: RawGraph, fetches: Sequence[str] = ()) -> tuple[str, ...]:
    """Name what one training step runs: the fetches given, else ``train_op``, else the updates of trained variables,
    else every sink that is no saver, summary or initializer."""
    if fetches:
        return tuple(dict.fromkeys(map(node_name, fetches)))
    named = [name for name in map(node_name, graph.collections.get("train_op", ())) if name in graph.nodes]
    if named:
        return tuple(dict.fromkeys(named))
    skipped = _initializers(graph)
    found = [n.name for n in graph.nodes.values() if updates(n.type) and n.name not in skipped and _trained(graph, n)]
    return tuple(found or _sinks(graph, skipped))


def _trained(graph: RawGraph, update: RawNode) -> bool:
    """Tell whether an update's target is a trained variable (any variable where the file does not say)."""
    trained = {name for name, trainable in graph.variables.items() if trainable}
    name = update.inputs[0][0] if update.inputs else ""
    while name in graph.nodes and graph.nodes[name].type in READERS and graph.nodes[name].inputs:
        name = graph.nodes[name].inputs[0][0]
    return name in trained if trained else name in graph.nodes and graph.nodes[name].type in VARIABLES


def _sinks(graph: RawGraph, skipped: set[str]) -> list[str]:
    """Name what nothing reads or waits for, but for variables and what only waits for savers and the like."""
    nodes = graph.nodes.values()
    removed = skipped | {n.name for n in nodes if n.type in SAVERS | {"NoOp"} or _SUMMARIES.fullmatch(n.type)}
    _remove_unread(graph, removed, consumers(nodes))
    kept = [n for n in nodes if n.name not in removed]
    used = {name for n in kept for name in (*n.control, *(i for i, _ in n.inputs))} | {
        n.name for n in kept if n.type in VARIABLES or (n.control and removed.issuperset(n.control))
    }
    return [n.name for n in kept if n.name not in used]


def pruned(graph: RawGraph, roots: Sequence[str]) -> list[RawNode]:
    """Return the nodes that ``roots`` need, through data and control edges, in the file's order.

    Raises MetaGraphError for a root or an input that is not in the file.
    """
    needed: set[str] = set()
    pending = [(root, "") for root in roots]
    while pending:
        name, reader = pending.pop()
        if name in needed:
            continue
        node = graph.nodes.get(name)
        if node is None:
            raise graph.fail(
                f"there is no node {name!r}" if not reader else f"its input {name!r} is not in the file", reader
            )
        needed.add(name)
        pending += [(i, name) for i in (*(i for i, _ in node.inputs), *node.control)]
    return [node for node in graph.nodes.values() if node.name in needed]
