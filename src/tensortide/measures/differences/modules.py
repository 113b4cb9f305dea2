"""Join of two module trees: by path, and where names differ by structure.

The children of two matched modules are matched in turn: those of one name first, then the others, numbered ones among
them, in their order by how much they resemble each other (a sequence alignment). A module that only encloses what the
other side has without it (``model.`` before every path, a wrapper) is added or removed around the match. Every module
of either side is in the join once, so its own figures sum to those of the steps.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from tensortide.differences import Matcher, Partners, diff
from tensortide.graph.model import describe
from tensortide.measures.differences.side import Module, ModulePair, Side
from tensortide.timelines.module_figures import ModuleFigures

LEAST = 0.3
"""Least likeness of two modules that are matched under different names."""
SAME_NAME, SAME_NUMBER = 0.3, 0.02
"""Likeness that one name adds; a number decides among equals."""
KIN = 0.8
"""Likeness of two lists, or of two types whose names end in one word, as a share of that of one type."""
LARGE = 0.05
"""Least share of the FLOPs around them at which the shares of two modules say anything."""
WRAPPED, CORE = 1.5, 0.6
"""Least factor by which what is inside a wrapper fits better than the wrapper, and least share of its modules."""


class _Traits(NamedTuple):
    """Traits of a module: equal numbers for equal structures with sizes (``shape``), without (``form``), and by
    parameters (``weights``); the number of modules, and the ops in it."""

    shape: int
    form: int
    weights: int
    size: int
    ops: Counter[str]


def join(a: Side, b: Side) -> ModulePair:
    """Join the modules of two steps; the root is the step as a whole."""
    return diff(a.tree, b.tree, ModuleMatcher(a, b))


class ModuleMatcher(Matcher[ModuleFigures]):
    """Matches the modules of two steps by name and structure; what differs in no op or size is the same."""

    def __init__(self, a: Side, b: Side) -> None:
        self._known: dict[Hashable, int] = {}
        self._of: dict[Module, _Traits] = {}
        for side in (a, b):
            self._describe(side, side.tree)

    def same(self, a: Module, b: Module, inside: Sequence[ModulePair]) -> bool:
        """Tell whether two modules have equal ops and sizes."""
        return self._of[a].shape == self._of[b].shape

    def inside(self, a: Module, b: Module) -> tuple[Partners[ModuleFigures], Iterable[Partners[ModuleFigures]]]:
        """Match the children of ``a`` and ``b``, or one of them with a module that the other one only wraps."""
        if (core := self._wrapped(a, b)) is not None:
            return (None, b), [(a, core), *((None, child) for child in b.children if child is not core)]
        if (core := self._wrapped(b, a)) is not None:
            return (a, None), [(core, b), *((child, None) for child in a.children if child is not core)]
        return (a, b), self._children(a.children, b.children)

    def _children(self, left: Sequence[Module], right: Sequence[Module]) -> Iterator[Partners[ModuleFigures]]:
        """Match children: the pairs in the order of ``right``, what is only on the left at its place."""
        named = {child.name: child for child in right if not child.name.isdigit()}
        partner = {one: named[one.name] for one in left if one.name in named}
        taken = set(partner.values())
        rest = [one for one in left if one not in partner], [one for one in right if one not in taken]
        partner.update((one, other) for one, other, _ in self._aligned(*rest))
        of_right = {b: a for a, b in partner.items()}
        alone = [*left]  # what is on the left alone, and pairs that come later
        for b in right:
            if (a := of_right.get(b)) in alone:
                before = alone[: alone.index(a)]
                yield from ((one, None) for one in before if one not in partner)
                alone = [one for one in before if one in partner] + alone[len(before) + 1 :]
            yield a, b
        yield from ((one, None) for one in alone if one not in partner)

    def _aligned(self, left: Sequence[Module], right: Sequence[Module]) -> list[tuple[Module, Module, float]]:
        """Align two sequences so that the sum of likenesses is greatest; in doubt the first match."""
        best = [[0.0] * (len(right) + 1) for _ in range(len(left) + 1)]
        around = tuple(sum(one.whole.flops for one in nodes) for nodes in (left, right))
        likes = [[self._likeness(a, b, around) for b in right] for a in left]
        for i in reversed(range(len(left))):
            for j in reversed(range(len(right))):
                matched = likes[i][j] + best[i + 1][j + 1] if likes[i][j] >= LEAST else 0.0
                best[i][j] = max(best[i + 1][j], best[i][j + 1], matched)
        found, i, j = [], 0, 0
        while i < len(left) and j < len(right):
            if likes[i][j] >= LEAST and best[i][j] == likes[i][j] + best[i + 1][j + 1]:
                found.append((left[i], right[j], likes[i][j]))
                i, j = i + 1, j + 1
            elif best[i][j] == best[i + 1][j]:
                i += 1
            else:
                j += 1
        return found

    def _likeness(self, a: Module, b: Module, around: Sequence[int]) -> float:
        """Return how much two modules resemble each other: 1 for equal ops and sizes, and more for one name."""
        bonus = 0.0 if a.name != b.name else SAME_NUMBER if a.name.isdigit() else SAME_NAME
        if not any(node.whole.ops or node.whole.parameters for node in (a, b)):
            return bonus + _kinship(a.of, b.of)
        one, other = self._of[a], self._of[b]
        if one.shape == other.shape:
            return 1.0 + bonus
        if one.weights == other.weights and a.whole.parameters:
            return 0.99 + bonus
        close = _close(a.whole.parameters, b.whole.parameters) if a.whole.parameters or b.whole.parameters else 0.0
        if one.form == other.form:
            return 0.5 + 0.4 * close + bonus
        shared = (one.ops & other.ops).total() / ((one.ops | other.ops).total() or 1)
        parts = [node.whole.flops / whole if whole else 0.0 for node, whole in zip((a, b), around, strict=True)]
        share = _close(*parts) if min(parts) >= LARGE else 0.0
        kinship = max(_kinship(a.of, b.of), KIN if _is_list(a) and _is_list(b) else 0.0)
        return 0.35 * kinship + 0.2 * shared + 0.25 * share + 0.1 * close + bonus

    # -- wrappers

    def _wrapped(self, inner: Module, outer: Module) -> Module | None:
        """Return the child of ``outer`` that is rather the partner of ``inner`` than ``outer`` itself is: the modules
        inside it fit those of ``inner`` better."""
        if not inner.children or inner.of == outer.of:
            return None
        plain = self._fit(inner, outer)
        cores = [child for child in outer.children if self._of[child].size >= max(2, CORE * (self._of[outer].size - 1))]
        fits = [(self._fit(inner, child), child) for child in cores]
        fit, best = max(fits, key=lambda one: one[0], default=(0.0, None))
        return best if fit > WRAPPED * plain else None

    def _fit(self, a: Module, b: Module) -> float:
        """Sum the likenesses of the children of two modules that would be matched."""
        names = {child.name for child in a.children} & {child.name for child in b.children}
        named = sum(not name.isdigit() for name in names) * (LEAST + SAME_NAME)
        rest = ([child for child in one.children if child.name not in names or child.name.isdigit()] for one in (a, b))
        return named + sum(like for _, _, like in self._aligned(*rest))

    # -- structure

    def _describe(self, side: Side, node: Module) -> None:
        """Number the structure of a module with sizes, without, and by its parameters; count its ops and modules."""
        for child in node.children:
            self._describe(side, child)
        graph, indexes = side.graph, side.ops_of.get(node.path, [])
        names = [graph.calls[graph.ops[i].call].op for i in indexes]
        sizes = [
            tuple(describe(graph.tensors[t]) for t in (*graph.ops[i].inputs, *graph.ops[i].outputs)) for i in indexes
        ]
        phases = [side.phases[i] for i in indexes]
        held = node.own.parameters, node.own.parameter_bytes
        inside = [self._of[child] for child in node.children]
        shapes = (held, *zip(names, phases, sizes, strict=True)), tuple(one.shape for one in inside)
        forms = (node.of, *zip(names, phases, strict=True)), tuple(one.form for one in inside)
        held_by = "weights", node.of, node.own.parameters, tuple(one.weights for one in inside)
        shape, form, weights = (self._known.setdefault(one, len(self._known)) for one in (shapes, forms, held_by))
        size, ops = 1 + sum(one.size for one in inside), sum((one.ops for one in inside), Counter(names))
        self._of[node] = _Traits(shape, form, weights, size, ops)


def _close(one: float, other: float) -> float:
    return min(one, other) / (max(one, other) or 1)


def _is_list(node: Module) -> bool:
    """True if all modules in it are numbered."""
    return bool(node.children) and all(child.name.isdigit() for child in node.children)


@cache
def _kinship(one: str, other: str) -> float:
    """Return 1 for one type, and less for types that end in one word: ``LayerNorm``, ``LlamaRMSNorm``."""
    words = [re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)[-1:] for name in (one, other)]
    return 1.0 if one == other != "" else KIN if words[0] == words[1] != [] else 0.0
