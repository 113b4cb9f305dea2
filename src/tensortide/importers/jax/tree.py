"""Paths of arrays in the containers that a function takes, and which results take the place of which arguments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tensortide.importers.jax.program import Cell, Leaf

_OPTIMIZERS = ("optax",)
_STATE = ("opt_state", "optimizer_state", "optimizer_variables", "optimizer", "optim", "opt")
_BUFFERS = (
    "batch_stats",
    "BatchStat",
    "RngState",
    "RngKey",
    "RngCount",
    "non_trainable_variables",
    "metrics_variables",
)
_TRAINED = ("Param", "params", "trainable_variables")
_COLLECTIONS = ("trainable_variables", "non_trainable_variables")
_ENDS = ("value", "raw_value")
"""Last parts of the paths of Flax NNX, which name no array."""


def path_of(keys: Sequence[Any], names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the path of a leaf of ``(arguments, keywords)``: the parameter's name, then keys, indexes and fields."""
    parts = list(map(_part, keys))
    if len(parts) > 1 and parts[0] in ("0", "1"):
        first, parts = parts[0], parts[1:]
        if first == "0" and parts[0].isdecimal() and int(parts[0]) < len(names):
            parts[0] = names[int(parts[0])]
        elif first == "0" and parts[0].isdecimal():
            parts[0] = f"arg{parts[0]}"
    if len(parts) > 1 and not parts[0]:
        parts = parts[1:]
    if len(parts) > 1 and parts[-1] in _ENDS:
        parts = parts[:-1]
    return tuple(parts)


def name_of(path: tuple[str, ...]) -> str:
    """Return the name of an argument: its path, without the collection that a named variable of Keras is in."""
    whole = len(path) < 2 or path[0] not in _COLLECTIONS or path[1].isdecimal()
    return ".".join(path if whole else path[1:])


def _part(key: Any) -> str:
    return str(next((getattr(key, name) for name in ("key", "idx", "name") if hasattr(key, name)), key))


def containers(value: Any) -> dict[tuple[Any, ...], tuple[str, ...]]:
    """Return for every leaf of ``value`` the types around it, outermost first, as ``module.name``, by its keys."""
    import jax

    found: dict[tuple[Any, ...], tuple[str, ...]] = {}

    def walk(node: Any, keys: tuple[Any, ...], around: tuple[str, ...]) -> None:
        kind = type(node)
        around = (*around, f"{kind.__module__}.{kind.__name__}")
        children, _ = jax.tree_util.tree_flatten_with_path(node, is_leaf=lambda other: other is not node)
        if len(children) == 1 and not children[0][0]:
            found[keys] = around
            return
        for more, child in children:
            walk(child, (*keys, *more), around)

    walk(value, (), ())
    return found


def leaf_of(path: tuple[str, ...], cell: Cell, around: Sequence[str], donated: bool) -> Leaf:
    """Return the Leaf of an argument in containers of the types ``around``."""
    kinds = [kind.rpartition(".")[2] for kind in around]
    optimizer = any(kind.partition(".")[0] in _OPTIMIZERS for kind in around) or any(part in _STATE for part in path)
    optimizer |= any(kind in ("OptState", "OptVariable", "OptArray") for kind in kinds)
    buffer = any(part in _BUFFERS for part in (*path, *kinds))
    trained = any(part in _TRAINED for part in (*path, *kinds)) or None
    return Leaf(path, cell, optimizer, donated, buffer and not optimizer, None if optimizer or buffer else trained)


def paired(
    before: Any, arguments: Sequence[Leaf | None], after: Any, results: Sequence[Cell]
) -> list[tuple[Leaf, Cell]]:
    """Pair arguments with results: of the largest containers of the same structure, shapes and dtypes, the first with
    the first. ``before`` and ``after`` are their tree structures."""
    cells = [leaf.cell if leaf is not None else Cell((-1,), "") for leaf in arguments]
    places: dict[Any, list[range]] = {}
    for tree, place in _subtrees(before, 0):
        places.setdefault(_key(tree, cells, place), []).append(place)
    taken, found = set[int](), list[tuple[Leaf, Cell]]()

    def match(tree: Any, start: int) -> None:
        place = range(start, start + tree.num_leaves)
        key = _key(tree, results, place)
        for source in places.get(key, ()):
            if place and taken.isdisjoint(source) and (len(place) > 1 or results[start].shape):
                taken.update(source)
                pairs = zip(source, place, strict=True)
                found.extend((leaf, results[j]) for i, j in pairs if (leaf := arguments[i]) is not None)
                return
        for child in tree.children():
            match(child, start)
            start += child.num_leaves

    match(after, 0)
    return found


def _key(tree: Any, cells: Sequence[Cell], place: range) -> Any:
    shapes = tuple((cells[i].shape, cells[i].dtype) for i in place)
    return (str(tree) if len(place) > 1 else "", shapes)


def _subtrees(tree: Any, start: int) -> Iterator[tuple[Any, range]]:
    """Yield every subtree and the positions of its leaves, outer ones first."""
    yield tree, range(start, start + tree.num_leaves)
    for child in tree.children():
        yield from _subtrees(child, start)
        start += child.num_leaves
