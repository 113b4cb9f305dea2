"""Sizes of fed tensors that are taken to be one: a batch, a decoder's inputs and its labels, lengths that data decide.

Nothing in a graph says that a batch of labels is as large as that of the inputs before a loss compares their rows. Each
assumption is a note.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeAlias

from tensortide.expr import Expr, as_expr, symbol
from tensortide.importers.shapes import ShapeError
from tensortide.importers.tensorflow.optypes import FEEDS, VARIABLES
from tensortide.importers.tensorflow.program import Shape
from tensortide.importers.tensorflow.sizes.propagate import Propagation
from tensortide.importers.tensorflow.sizes.unify import Conflict, Origin

NodeOutput: TypeAlias = tuple[int, int]
"""A node and the number of its output."""

NOWHERE = 99
"""The place of a size that no fed tensor has."""


class Feeds:
    """The sizes of feeds and variables of a file, as they become fewer. ``full`` are the sizes decided by data that
    were taken to be the most that they can be."""

    def __init__(self, found: Propagation) -> None:
        self.found = found
        self.nodes = found.graph.nodes
        self.sizes = found.sizes
        self.notes: list[str] = []
        self.full: list[str] = []
        self.feeds = self._shapes_of(FEEDS)
        self.variables = self._shapes_of(VARIABLES)

    def _shapes_of(self, types: Collection[str]) -> dict[NodeOutput, Shape]:
        """Shapes of the outputs of nodes of some types, by node and output."""
        shapes: dict[NodeOutput, Shape | None] = {}
        for i, node in enumerate(self.nodes):
            if node.type == "VarHandleOp" and node.type in types:
                shapes[i, 0] = self.found.state.elements.get(i)
            elif node.type in types:
                shapes.update({(i, k): tensor.shape for k, tensor in enumerate(self.found.tensors[i])})
        return {place: shape for place, shape in shapes.items() if shape is not None}

    def free_in(self, dims: Iterable[Expr]) -> list[str]:
        """Symbols of some sizes that are still open, in order."""
        return list(dict.fromkeys(n for dim in dims for n in sorted(self.sizes.now(dim).symbols)))

    def current(self, shape: Shape) -> Shape:
        """Return a shape in the sizes that are still open."""
        return tuple(map(self.sizes.now, shape))

    def attempt(self, learn: Callable[..., object], *sizes: Expr) -> None:
        try:
            learn(*sizes)
        except Conflict:
            raise
        except ShapeError as error:
            self.notes.append(f"two sizes stay apart: {error}")

    def same(self, name: str, size: Expr | int) -> None:
        """Take a symbol to be a size, unless it cannot be."""
        self.attempt(self.sizes.equal, symbol(name), as_expr(size))

    def join_feeds(self) -> None:
        """Join all sizes of feeds that can be."""
        self._join_batches()
        self._fill_masks()
        self._join_flattened()
        self._join_alike()
        self._join_flattened()
        self._join_vectors()
        self._join_factors()

    def _fill_masks(self) -> None:
        """Sizes that data decide are as large as they can be: also a decoder that runs as often as its labels are long,
        and at most as often as its inputs are."""
        for name, most in self.sizes.bounds.items():
            lengths = self.sizes.now(symbol(name)), self.sizes.now(most)
            if name not in self.sizes.solved or (name.startswith("trips(") and all(map(self._is_fed, lengths))):
                self.same(name, most)
                self.full.append(name)

    def _is_fed(self, size: Expr) -> bool:
        """Tell a size of a fed tensor that nothing tells."""
        return any(size == symbol(name) and self.sizes.origins[name] is Origin.FEED for name in size.symbols)

    def _join_batches(self) -> None:
        """Give all outputs of one iterator or queue the first size of the first: they are one batch."""
        outputs: dict[int, list[Shape]] = defaultdict(list)
        for (i, _), shape in self.feeds.items():
            outputs[i].append(shape)
        for i, shapes in outputs.items():
            first = {n for shape in shapes if shape for n in self.free_in(shape[:1])}
            if all(shapes) and len(first) > 1 and first <= self.sizes.unstored:
                for shape in shapes[1:]:
                    self.attempt(self.sizes.equal, shapes[0][0], shape[0])
                self.notes.append(f"the outputs of {self.nodes[i].name} are taken to be one batch")

    def _join_alike(self) -> None:
        """Give a fed tensor none of whose open sizes occurs in another those of the first one stored with the same
        shape."""
        groups: dict[object, list[NodeOutput]] = defaultdict(list)
        for place in self.feeds:
            groups[self._stored_shape(place)].append(place)
        holders = Counter(name for shape in self.feeds.values() for name in self.free_in(shape))
        for members in groups.values():
            for place in members[1:]:
                free = self.free_in(self.feeds[place])
                own = [name for name in free if name in self.sizes.unstored]
                if own and all(holders[name] == 1 for name in own):
                    self._join(members[0], place)
                    holders.update(self.free_in(self.feeds[place]))

    def _stored_shape(self, place: NodeOutput) -> object:
        attributes = self.nodes[place[0]].attributes
        shapes = attributes.get("output_shapes") or attributes.get("_output_shapes")
        given = shapes[place[1]] if isinstance(shapes, tuple) and place[1] < len(shapes) else None
        return attributes.get("shape") or given

    def _join(self, first: NodeOutput, other: NodeOutput) -> None:
        for a, b in zip(self.feeds[first], self.feeds[other], strict=True):
            self.attempt(self.sizes.equal, a, b)
        self.notes.append(f"{self._called(other)} is taken to have the shape of {self._called(first)}")

    def _called(self, place: NodeOutput) -> str:
        """Return the name of a fed tensor."""
        return self.nodes[place[0]].name + (f":{place[1]}" if place[1] else "")

    def _join_vectors(self) -> None:
        """Give a fed vector whose size is in no other feed the first size of all others: one number for each sample."""
        shapes = {place: self.current(shape) for place, shape in self.feeds.items()}
        first = {shape[0] for shape in shapes.values() if len(shape) > 1}
        if len(first) != 1 or not self._is_fed(batch := first.pop()):
            return
        holders = Counter(name for shape in shapes.values() for name in self.free_in(shape))
        for place, shape in shapes.items():
            names = shape[0].symbols if len(shape) == 1 else frozenset()
            if len(names) == 1 and names <= self.sizes.unstored and all(holders[name] == 1 for name in names):
                self.attempt(self.sizes.equal, shape[0], batch)
                self.notes.append(f"{self._called(place)} is taken to have an element for each of the batch")

    def _join_flattened(self) -> None:
        """Feeds that have as many rows once flattened have the same sizes in the same order: labels and logits."""
        for a, b in list(self.sizes.pending):
            left, right = self.sizes.now(a), self.sizes.now(b)
            if len(left.terms) != 1 or len(right.terms) != 1:
                continue
            ratio = left / right
            ((monomial, coefficient),) = ratio.terms.items()
            sides = [[atom for atom, e in monomial if e == power and isinstance(atom, str)] for power in (1, -1)]
            if coefficient != 1 or len(sides[0]) != len(sides[1]) or 2 * len(sides[0]) != len(monomial) or not monomial:
                continue
            (one, above), (other, below) = map(self._in_one_feed, sides)
            if above and below:
                for x, y in zip(above, below, strict=True):
                    self.same(x, symbol(y))
                self.notes.append(f"{one} and {other} are taken to have equal sizes in the same order")
            elif above or below:
                self._join_in_place(*((sides[1], other, above) if above else (sides[0], one, below)))

    def _join_in_place(self, names: Sequence[str], feed: str, own: Sequence[str]) -> None:
        """Pair the sizes of a feed with as many ``names`` by their places in other feeds; one that is in none with what
        is left: the trips of a decoder with the length of its labels."""
        at = self.first_places()
        places = {at.get(name, NOWHERE): name for name in names}
        own_places = {at.get(name, NOWHERE): name for name in own}
        pairs = [(places.pop(place), own_places.pop(place)) for place in own_places.keys() & places.keys()]
        if len(pairs) + 1 == len(names) and NOWHERE in places and len(own_places) == 1:
            for x, y in (*pairs, (places.popitem()[1], own_places.popitem()[1])):
                self.same(x, symbol(y))
            self.notes.append(f"{feed} is taken to be a batch like the others, as long as what is compared with it")

    def first_places(self) -> dict[str, int]:
        """Return the first place that each open size has in a fed tensor."""
        found: dict[str, int] = {}
        for shape in map(self.current, self.feeds.values()):
            for i, dim in enumerate(shape):
                for name in dim.symbols if len(dim.symbols) == 1 else ():
                    if dim == symbol(name):
                        found[name] = min(i, found.get(name, i))
        return found

    def _in_one_feed(self, names: Sequence[str]) -> tuple[str, list[str]]:
        """Return a fed tensor with all these open sizes, and they in its order; nothing if there is none."""
        for place, shape in self.feeds.items():
            found = [n for dim in self.current(shape) for n in names if dim == symbol(n) and n in self.sizes.unstored]
            if len(found) == len(names):
                return self._called(place), found
        return "", []

    def _join_factors(self) -> None:
        """Numbers of a reshape that only a product ties to sizes (``b*s = 8*24``) are the sizes of equal value."""
        joined, before = 0, -1
        while joined > before:
            before = joined
            for a, b in list(self.sizes.pending):
                left, right = self.sizes.now(a), self.sizes.now(b)
                if len(left.terms) == len(right.terms) == 1:
                    joined += self._pair(*self._factors(left / right))
            self.attempt(lambda: self.sizes.settle(last=False))
        if joined:
            self.notes.append(f"numbers in shapes taken to be the sizes of their value that they meet: {joined}")

    def _factors(self, ratio: Expr) -> tuple[list[Expr], list[Expr]]:
        """Return what is above and below in a quotient of products."""
        ((monomial, _),) = ratio.terms.items()
        sides: tuple[list[Expr], list[Expr]] = ([], [])
        for atom, exponent in monomial:
            sides[exponent < 0].append(Expr({((atom, 1),): 1}))
        return sides

    def _pair(self, above: Sequence[Expr], below: Sequence[Expr]) -> int:
        """Unify the numbers on either side with the only factor on the other that has their value. Returns how many."""
        count = 0
        for mine, others in ((above, below), (below, above)):
            for factor in mine:
                like = [f for f in others if self.sizes.stored(f) and self.sizes.number(f) == self.sizes.number(factor)]
                origins = {self.sizes.origins[name] for name in factor.symbols if factor == symbol(name)}
                if len(like) == 1 and self.sizes.stored(factor) and origins and max(origins) <= Origin.STORED_FEED:
                    self.attempt(self.sizes.equal, factor, like[0])
                    count += self.sizes.now(factor) == self.sizes.now(like[0])
        return count
