"""One difference: two trees of named amounts, matched node by node, with what was added, removed and changed.

>>> before, after = flat({"mm": 40, "add": 2}, 0), flat({"mm": 50, "relu": 1}, 0)
>>> [(pair.name, pair.kind, pair.difference) for pair in diff(before, after).children]
[('mm', 'changed', 10), ('add', 'removed', -2), ('relu', 'added', 1)]

Amounts are numbers, or records of numbers (``Amounts``). The children of two matched nodes are matched by name, or as a
``Matcher`` says. Each node of either side is in one pair, so own amounts and differences add up to those of the whole.
``reports/of_differences.py`` shows pairs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import zip_longest
from typing import Any, Generic, Literal, NamedTuple, Self, TypeAlias, TypeVar

import msgspec

A = TypeVar("A")
X = TypeVar("X")
Kind: TypeAlias = Literal["same", "renamed", "changed", "added", "removed"]


class Amounts(msgspec.Struct, frozen=True):
    """A record of numbers, added and subtracted field by field; every field has a default, the amount of nothing.

    None is an unknown amount: sums and differences with it are unknown. True if one is known and not 0.
    """

    def __bool__(self) -> bool:
        return any(msgspec.structs.astuple(self))

    def nothing(self) -> Self:
        """Return the amounts of what is missing beside what has these."""
        return type(self)()

    def __add__(self, other: Self) -> Self:
        return type(self)(*map(_plus, msgspec.structs.astuple(self), msgspec.structs.astuple(other)))

    def __sub__(self, other: Self) -> Self:
        return type(self)(*map(minus, msgspec.structs.astuple(self), msgspec.structs.astuple(other)))


def _plus(a: Any, b: Any) -> Any:
    return None if a is None or b is None else a + b


def minus(a: Any, b: Any) -> Any:
    """Return ``a - b``; None unless both are known numbers."""
    return None if a is None or b is None or isinstance(a, str) or isinstance(b, str) else a - b


def relative(a: float | None, b: float | None) -> float | None:
    """Return the change from ``a`` to ``b`` as a part of ``a``; None where one is unknown, or where ``a`` is 0."""
    return b / a - 1 if a and b is not None else None


class Values(NamedTuple):
    """One amount of both sides."""

    a: Any
    b: Any

    @property
    def difference(self) -> Any:
        """``b - a``; None unless both are known numbers."""
        return minus(self.b, self.a)

    @property
    def change(self) -> float | None:
        """The difference as a part of ``a``."""
        return relative(self.a, self.b)


@dataclass(frozen=True, eq=False)
class Node(Generic[A]):
    """A named node of one side: its ``own`` amounts, without those of its ``children``.

    ``path`` is its name for a reader who does not see the tree (default: its name); ``of`` is what it stands for.
    """

    name: str
    own: A
    children: tuple[Node[A], ...] = ()
    path: str = ""
    of: Any = None

    @cached_property
    def whole(self) -> A:
        """The amounts with those of the nodes inside."""
        return reduce(_plus, (child.whole for child in self.children), self.own)

    @property
    def label(self) -> str:
        """The path, or else the name."""
        return self.path or self.name

    def walk(self) -> Iterator[Node[A]]:
        """Yield this node and all inside it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()


def flat(parts: Mapping[str, A], own: A, name: str = "") -> Node[A]:
    """Make the tree of amounts by name. ``own`` is what belongs to no part, such as 0."""
    return Node(name, own, tuple(Node(one, amount) for one, amount in parts.items()))


class Both(Generic[A]):
    """Amounts of two sides: those of a pair of nodes, or of pairs together."""

    @property
    def own(self) -> tuple[A, A]:
        """The amounts of both sides without the nodes inside."""
        raise NotImplementedError

    @property
    def whole(self) -> tuple[A, A]:
        """The amounts of both sides with the nodes inside."""
        raise NotImplementedError

    @property
    def difference(self) -> A:
        """The amounts of ``b`` less those of ``a``, with the nodes inside."""
        found: A = minus(self.whole[1], self.whole[0])
        return found

    def values(self, name: str = "", *, own: bool = False) -> Values:
        """The amount called ``name`` (none: the amounts themselves) on both sides, with the nodes inside or without."""
        return Values(*((getattr(one, name) if name else one) for one in (self.own if own else self.whole)))


@dataclass(frozen=True, eq=False)
class Pair(Both[A]):
    """A node of ``a`` and its partner in ``b``; None where there is none. Of a ``changed`` one the name may differ."""

    a: Node[A] | None
    b: Node[A] | None
    kind: Kind
    children: tuple[Pair[A], ...] = ()

    @property
    def node(self) -> Node[A]:
        """The node of ``b``, or of ``a`` where it was removed."""
        found = self.b or self.a
        assert found is not None
        return found

    @property
    def matched(self) -> bool:
        """True if both sides have it."""
        return self.a is not None and self.b is not None

    @cached_property
    def own(self) -> tuple[A, A]:
        """The own amounts of both nodes; those of nothing where there is no node."""
        own = self.node.own
        nothing: A = own.nothing() if isinstance(own, Amounts) else type(own)()
        return nothing if self.a is None else self.a.own, nothing if self.b is None else self.b.own

    @cached_property
    def whole(self) -> tuple[A, A]:
        """The amounts of both sides with the nodes inside."""
        return _sums((child.whole for child in self.children), self.own)

    @property
    def path(self) -> str:
        """The path in ``b``, or in ``a`` of what was removed."""
        return self.node.path

    @property
    def label(self) -> str:
        """The path, or else the name."""
        return self.node.label

    @property
    def name(self) -> str:
        """The name; both where they differ."""
        return " → ".join(dict.fromkeys(one.name for one in (self.a, self.b) if one is not None))

    def walk(self) -> Iterator[Pair[A]]:
        """Yield this pair and all inside it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, eq=False)
class Together(Both[A]):
    """Pairs as one row: a list of those alike, with the sums of their amounts. ``depth`` is its level in a tree."""

    pairs: Sequence[Pair[A]]
    name: str = ""
    depth: int = 0

    @property
    def first(self) -> Pair[A]:
        """The first of them, which stands for all."""
        return self.pairs[0]

    @property
    def kind(self) -> Kind:
        """The kind of all of them."""
        return self.first.kind

    @property
    def count(self) -> int:
        """The number of pairs."""
        return len(self.pairs)

    @cached_property
    def own(self) -> tuple[A, A]:
        """The sums of their own amounts."""
        return _sums((one.own for one in self.pairs[1:]), self.first.own)

    @cached_property
    def whole(self) -> tuple[A, A]:
        """The sums of their amounts with the nodes inside."""
        return _sums((one.whole for one in self.pairs[1:]), self.first.whole)


def grouped(pairs: Iterable[Pair[A]], key: Callable[[Pair[A]], Hashable]) -> list[Together[A]]:
    """Take the pairs of one key together, in the order of their first."""
    found: defaultdict[Hashable, list[Pair[A]]] = defaultdict(list)
    for one in pairs:
        found[key(one)].append(one)
    return [Together(some, some[0].name) for some in found.values()]


def _sums(parts: Iterable[tuple[A, A]], start: tuple[A, A]) -> tuple[A, A]:
    a, b = start
    for one in parts:
        a, b = _plus(a, one[0]), _plus(b, one[1])
    return a, b


# -- matching ---------------------------------------------------------------------------------------

Partners: TypeAlias = tuple[Node[A] | None, Node[A] | None]


def match(a: Iterable[X], b: Iterable[X], key: Callable[[X], Hashable]) -> list[tuple[X | None, X | None]]:
    """Match the n-th of each key in ``a`` with the n-th in ``b``, None where there is none; the keys in the order of
    ``a``, then those of ``b`` alone."""
    left, right = defaultdict[Hashable, list[X]](list), defaultdict[Hashable, list[X]](list)
    for side, found in ((a, left), (b, right)):
        for one in side:
            found[key(one)].append(one)
    pairs: list[tuple[X | None, X | None]] = []
    for name in dict.fromkeys([*left, *right]):
        pairs += zip_longest(left.get(name, ()), right.get(name, ()))
    return pairs


class Matcher(Generic[A]):
    """Matches children by a ``key``, by default their name; a pair is the same if all amounts in it are."""

    def __init__(self, key: Callable[[Node[A]], Hashable] = lambda node: node.name) -> None:
        self.key = key

    def inside(self, a: Node[A], b: Node[A]) -> tuple[Partners[A], Iterable[Partners[A]]]:
        """Return two nodes to be paired, and the pairs of nodes inside them. Where a node only wraps the partner of the
        other, it is to be paired with None, and the two are inside."""
        return (a, b), match(a.children, b.children, self.key)

    def same(self, a: Node[A], b: Node[A], inside: Sequence[Pair[A]]) -> bool:
        """Tell whether two partners differ in nothing but names."""
        return a.own == b.own and all(one.kind in ("same", "renamed") for one in inside)


def diff(a: Node[A], b: Node[A], matcher: Matcher[A] | None = None) -> Pair[A]:
    """Join two trees to a tree of pairs, and say of each what became of it."""
    return _paired((a, b), Matcher[A]() if matcher is None else matcher)


def _paired(both: Partners[A], matcher: Matcher[A]) -> Pair[A]:
    a, b = both
    if a is None or b is None:
        inner = a or b
        assert inner is not None
        inside: Iterable[Partners[A]] = [(one, None) if b is None else (None, one) for one in inner.children]
    else:
        (a, b), inside = matcher.inside(a, b)
    pairs = tuple(_paired(one, matcher) for one in inside)
    if a is None or b is None:
        return Pair(a, b, "added" if a is None else "removed", pairs)
    same = matcher.same(a, b, pairs)
    return Pair(a, b, "changed" if not same else "same" if a.name == b.name else "renamed", pairs)
