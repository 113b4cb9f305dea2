"""Join of two module trees: by path, and where names differ by structure.

The children of two matched modules are matched in turn: those of one name first, then the others, numbered ones among
them, in their order by how much they resemble each other (a sequence alignment). A module that only encloses what the
other side has without it (``model.`` before every path, a wrapper) is added or removed around the match. Every module
of either side is in the join once, so its own figures sum to those of the steps.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from functools import cache
from typing import Literal, TypeAlias

import msgspec

from tensortide.graph.model import describe
from tensortide.metrics.differences.side import NOTHING, Amounts, Node, Side

Kind: TypeAlias = Literal["same", "renamed", "changed", "added", "removed"]
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


class Pair(msgspec.Struct, frozen=True, eq=False):
    """A module of ``a`` and its partner in ``b``; None where there is none. ``changed`` is one whose ops, sizes or
    modules differ; its name may differ too."""

    a: Node | None
    b: Node | None
    kind: Kind
    whole: tuple[Amounts, Amounts]
    children: tuple[Pair, ...] = ()

    @property
    def own(self) -> tuple[Amounts, Amounts]:
        """Figures of both sides without the modules inside."""
        return (self.a.own if self.a else NOTHING, self.b.own if self.b else NOTHING)

    @property
    def difference(self) -> Amounts:
        """Figures of ``b`` with its modules less those of ``a``."""
        return self.whole[1] - self.whole[0]

    @property
    def path(self) -> str:
        """The path in ``b``, or in ``a`` of what was removed."""
        node = self.b or self.a
        assert node is not None
        return node.path

    @property
    def label(self) -> str:
        """The path, for a reader."""
        return self.path or "(root)"

    @property
    def name(self) -> str:
        """The last part of the path; both where they differ."""
        names = [node.name for node in (self.a, self.b) if node is not None]
        return " → ".join(dict.fromkeys(names))

    def walk(self) -> Iterator[Pair]:
        """Yield this pair and all inside it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()


def join(a: Side, b: Side) -> Pair:
    """Join the modules of two steps; the root is the step as a whole."""
    return _Join(a, b).pair(a.tree, b.tree)


class _Join:
    def __init__(self, a: Side, b: Side) -> None:
        self._known: dict[Hashable, int] = {}
        self._shape: dict[Node, int] = {}
        self._form: dict[Node, int] = {}
        self._weights: dict[Node, int] = {}
        self._size: dict[Node, int] = {}
        self._ops: dict[Node, Counter[str]] = {}
        for side in (a, b):
            self._describe(side, side.tree)

    def pair(self, a: Node, b: Node) -> Pair:
        """Match ``a`` with ``b``, or with a module that one of them only wraps."""
        for outer, inner in ((b, a), (a, b)):
            if (core := self._wrapped(inner, outer)) is not None:
                found = self.pair(inner, core) if outer is b else self.pair(core, inner)
                others = [_alone(child, added=outer is b) for child in outer.children if child is not core]
                return _outer(outer, [found, *others], added=outer is b)
        same = self._shape[a] == self._shape[b]
        kind: Kind = "changed" if not same else "same" if a.name == b.name else "renamed"
        return _pair(a, b, kind, [*self._children(a.children, b.children)])

    def _children(self, left: Sequence[Node], right: Sequence[Node]) -> Iterator[Pair]:
        """Match children: the pairs in the order of ``right``, what is only on the left at its place."""
        named = {child.name: child for child in right if not child.name.isdigit()}
        partner = {one: named[one.name] for one in left if one.name in named}
        taken = set(partner.values())
        rest = [one for one in left if one not in partner], [one for one in right if one not in taken]
        partner.update((one, other) for one, other, _ in self._aligned(*rest))
        of_right = {b: a for a, b in partner.items()}
        waiting = list(left)
        for b in right:
            a = of_right.get(b)
            if a is None:
                yield _alone(b, added=True)
                continue
            if a in waiting:  # what stands before it on the left alone comes first
                before = waiting[: waiting.index(a)]
                yield from (_alone(one, added=False) for one in before if one not in partner)
                waiting = [one for one in before if one in partner] + waiting[len(before) + 1 :]
            yield self.pair(a, b)
        yield from (_alone(one, added=False) for one in waiting if one not in partner)

    def _aligned(self, left: Sequence[Node], right: Sequence[Node]) -> list[tuple[Node, Node, float]]:
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

    def _likeness(self, a: Node, b: Node, around: Sequence[int]) -> float:
        """Return how much two modules resemble each other: 1 for equal ops and sizes, and more for one name."""
        bonus = 0.0 if a.name != b.name else SAME_NUMBER if a.name.isdigit() else SAME_NAME
        if not any(node.whole.ops or node.whole.parameters for node in (a, b)):
            return bonus + _kinship(a.type, b.type)
        if self._shape[a] == self._shape[b]:
            return 1.0 + bonus
        if self._weights[a] == self._weights[b] and a.whole.parameters:
            return 0.99 + bonus
        close = _close(a.whole.parameters, b.whole.parameters) if a.whole.parameters or b.whole.parameters else 0.0
        if self._form[a] == self._form[b]:
            return 0.5 + 0.4 * close + bonus
        ops, others = self._ops[a], self._ops[b]
        shared = (ops & others).total() / ((ops | others).total() or 1)
        parts = [node.whole.flops / whole if whole else 0.0 for node, whole in zip((a, b), around, strict=True)]
        share = _close(*parts) if min(parts) >= LARGE else 0.0
        kinship = max(_kinship(a.type, b.type), KIN if _is_list(a) and _is_list(b) else 0.0)
        return 0.35 * kinship + 0.2 * shared + 0.25 * share + 0.1 * close + bonus

    # -- wrappers

    def _wrapped(self, inner: Node, outer: Node) -> Node | None:
        """Return the child of ``outer`` that is rather the partner of ``inner`` than ``outer`` itself is: the modules
        inside it fit those of ``inner`` better."""
        if not inner.children or inner.type == outer.type:
            return None
        plain = self._fit(inner, outer)
        cores = [child for child in outer.children if self._size[child] >= max(2, CORE * (self._size[outer] - 1))]
        fits = [(self._fit(inner, child), child) for child in cores]
        fit, best = max(fits, key=lambda one: one[0], default=(0.0, None))
        return best if fit > WRAPPED * plain else None

    def _fit(self, a: Node, b: Node) -> float:
        """Sum the likenesses of the children of two modules that would be matched."""
        names = {child.name for child in a.children} & {child.name for child in b.children}
        named = sum(not name.isdigit() for name in names) * (LEAST + SAME_NAME)
        rest = ([child for child in one.children if child.name not in names or child.name.isdigit()] for one in (a, b))
        return named + sum(like for _, _, like in self._aligned(*rest))

    # -- structure

    def _describe(self, side: Side, node: Node) -> None:
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
        children = node.children
        shape = (held, *zip(names, phases, sizes, strict=True)), tuple(self._shape[one] for one in children)
        form = (node.type, *zip(names, phases, strict=True)), tuple(self._form[one] for one in children)
        self._shape[node] = self._known.setdefault(shape, len(self._known))
        self._size[node] = 1 + sum(self._size[one] for one in children)
        weights = node.type, node.own.parameters, tuple(self._weights[one] for one in children)
        self._weights[node] = self._known.setdefault(("weights", weights), len(self._known))
        self._form[node] = self._known.setdefault(form, len(self._known))
        self._ops[node] = sum((self._ops[one] for one in children), Counter(names))


def _close(one: float, other: float) -> float:
    return min(one, other) / (max(one, other) or 1)


def _is_list(node: Node) -> bool:
    """True if all modules in it are numbered."""
    return bool(node.children) and all(child.name.isdigit() for child in node.children)


@cache
def _kinship(one: str, other: str) -> float:
    """Return 1 for one type, and less for types that end in one word: ``LayerNorm``, ``LlamaRMSNorm``."""
    words = [re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)[-1:] for name in (one, other)]
    return 1.0 if one == other != "" else KIN if words[0] == words[1] != [] else 0.0


def _alone(node: Node, *, added: bool) -> Pair:
    children = [_alone(child, added=added) for child in node.children]
    return _outer(node, children, added=added)


def _outer(node: Node, children: Sequence[Pair], *, added: bool) -> Pair:
    """Make the pair of a module that one side alone has."""
    return _pair(None, node, "added", children) if added else _pair(node, None, "removed", children)


def _pair(a: Node | None, b: Node | None, kind: Kind, children: Sequence[Pair]) -> Pair:
    left, right = (node.own if node else NOTHING for node in (a, b))
    for child in children:
        left, right = left + child.whole[0], right + child.whole[1]
    return Pair(a, b, kind, (left, right), tuple(children))
