"""Sizes of classical models that nodes of ``ai.onnx.ml`` hold as long attributes: trees, support vectors."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeAlias

from tensortide.importers.onnx.read import Node

DOMAIN = "ai.onnx.ml"
Children: TypeAlias = dict[Hashable, Sequence[Hashable]]


def learned(node: Node) -> dict[str, int]:
    """Return what the cost of a node depends on: ``trees`` and the comparisons on their deepest paths, summed
    (``deepest``), or the elements of its ``support_vectors``; nothing where its attributes do not fit together."""
    if node.domain != DOMAIN:
        return {}
    if node.type.startswith("SVM"):
        return {"elements": len(node.attributes.get("support_vectors") or ())}
    if not node.type.startswith("TreeEnsemble"):
        return {}
    try:
        children, roots = (_joined if node.type == "TreeEnsemble" else _listed)(node.attributes)
    except (LookupError, TypeError, ValueError):
        return {}
    depths = _depths(children)
    return {"trees": len(roots), "deepest": sum(depths.get(root, 0) for root in roots)}


def _listed(found: Mapping[str, Any]) -> tuple[Children, list[Hashable]]:
    """Return the nodes below each node, and the roots: nodes that are below no other. A node is named by its tree and
    its number."""
    places = [*zip(found["nodes_treeids"], found["nodes_nodeids"], strict=True)]
    sides = zip(found["nodes_modes"], found["nodes_truenodeids"], found["nodes_falsenodeids"], strict=True)
    children: Children = {
        place: () if mode == "LEAF" else ((place[0], true), (place[0], false))
        for place, (mode, true, false) in zip(places, sides, strict=True)
    }
    below = {child for listed in children.values() for child in listed}
    return children, [place for place in children if place not in below]


def _joined(found: Mapping[str, Any]) -> tuple[Children, list[Hashable]]:
    """Return the nodes below each node of trees that share one list of nodes, and the roots. Leaves are in a list of
    their own, and are called by no number here."""
    sides = zip(
        found["nodes_truenodeids"], found["nodes_trueleafs"], found["nodes_falsenodeids"], found["nodes_falseleafs"],
        strict=True,
    )  # fmt: skip
    children: Children = {
        i: (None if true_is_leaf else true, None if false_is_leaf else false)
        for i, (true, true_is_leaf, false, false_is_leaf) in enumerate(sides)
    }
    return children, list(found["tree_roots"])


def _depths(children: Children) -> dict[Hashable, int]:
    """Count the comparisons on the longest path from each node; a node that leads back to itself ends its path."""
    depths: dict[Hashable, int] = {}
    for start in children:
        stack, open_ = [start], set()
        while stack:
            place = stack[-1]
            if place in depths:
                stack.pop()
                continue
            below = children[place]
            waiting = [child for child in below if child in children and child not in depths and child not in open_]
            if waiting and place not in open_:
                open_.add(place)
                stack += waiting
            else:
                depths[place] = 1 + max(depths.get(child, 0) for child in below) if below else 0
    return depths
