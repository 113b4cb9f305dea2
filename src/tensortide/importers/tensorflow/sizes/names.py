"""Independent sizes of a file: those that are taken to be one, short names for what is left, values for an example.

After propagation every size is an expression in the sizes that nothing ties to each other. Sizes of variables that are
equal, or small multiples of one, are taken to be one; feeds stored alike are taken to have the same sizes; sizes that
were only ever numbers stay numbers. Each such decision is a note. What is left is
called batch, time, hidden, vocabulary, ...
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from tensortide.dtypes import is_float
from tensortide.expr import Expr, symbol
from tensortide.importers.tensorflow.sizes.feeds import NOWHERE, Feeds
from tensortide.importers.tensorflow.sizes.propagate import Propagation
from tensortide.importers.tensorflow.sizes.unify import Origin

SMALLEST = 8
"""Smaller stored sizes (kernels, image channels, token types) stay numbers unless the caller names them."""

MULTIPLES = (2, 3, 4, 8, 16, 32)
"""A size of a variable that is so many times a smaller one is taken to be that multiple."""

EXAMPLES = (32, 64, 120, 128, 256, 1024)
"""Values of unknown sizes where an example is needed: the first at which every size is a whole number."""

_SPARE = "nmpqrudefgijklotwxyz"


class Independent(Feeds):
    """The sizes of feeds and variables, merged where they have equal values or small multiples of one."""

    def reduce(self) -> None:
        """Merge all that can be merged."""
        self.join_feeds()
        self.merge_equal()
        self.merge_multiples()
        self.merge_products()
        self.attempt(self.sizes.settle)
        self.settle_constants()
        self.attempt(self.sizes.settle)
        self.notes += [
            f"{place}: {a} and {b} must be equal, which does not follow" for place, a, b in self.sizes.left()
        ]

    def stored(self, *origins: Origin) -> list[tuple[str, int]]:
        """Open sizes of variables and feeds of some origins, with their values in the file."""
        dims = (dim for shape in (*self.variables.values(), *self.feeds.values()) for dim in shape)
        known = (name for name in self.free_in(dims) if name not in self.sizes.unstored)
        return [(name, self.sizes.hints[name]) for name in known if self.sizes.origins[name] in origins]

    def merge_equal(self) -> None:
        """Sizes of variables with equal values are one, the caller's name first. Lengths of tables and widths are kept
        apart where a table is as long as it is wide."""
        known = self._of_variables(lambda dim: {self.sizes.origins[name] for name in dim.symbols} == {Origin.USER})
        lengths = set(self.free_in(length for length, _ in self.found.state.rows))
        number = self.sizes.number
        square = {number(length) for length, wide in self.found.state.rows if number(length) in map(number, wide)}
        tables: dict[int, list[Expr]] = defaultdict(list)
        merged: Counter[int] = Counter()
        for name, hint in self.stored(Origin.VARIABLE):
            group = tables if hint in square and name in lengths else known
            if hint < SMALLEST:
                self.same(name, hint)
            elif not group[hint]:
                group[hint] = [symbol(name)]
            elif len(group[hint]) == 1:
                merged[hint] += 1
                self.attempt(self.sizes.equal, group[hint][0], symbol(name))
            else:
                self.notes.append(
                    f"a size of {hint} may be {' or '.join(map(str, group[hint]))}: it keeps its own name"
                )
        self.notes += [f"{count + 1} independent sizes of {hint} are taken to be one" for hint, count in merged.items()]
        self.notes += [
            f"lengths of tables and widths are both {hint}: which a size is, is not certain" for hint in tables
        ]
        self._keep_feeds(known)

    def _keep_feeds(self, known: Collection[int]) -> None:
        """Stored sizes of feeds are sizes of their own, whatever variables have the same value; small ones numbers."""
        first: dict[tuple[int, str], Expr] = {}
        for name, hint in self.stored(Origin.STORED_FEED):
            if hint < SMALLEST:
                self.same(name, hint)
                continue
            if hint in known:
                self.notes.append(f"{name} is {hint}, as are sizes of variables: it keeps its own name")
            self.attempt(
                self.sizes.equal, first.setdefault((hint, name.rpartition("_")[2]), symbol(name)), symbol(name)
            )

    def _of_variables(self, wanted: Callable[[Expr], bool]) -> dict[int, list[Expr]]:
        """Group the wanted sizes of variables by value."""
        found: dict[int, list[Expr]] = defaultdict(list)
        for dim in (self.sizes.now(dim) for shape in self.variables.values() for dim in shape):
            value = self.sizes.number(dim)
            if isinstance(value, int) and wanted(dim) and dim not in found[value]:
                found[value].append(dim)
        return found

    def merge_multiples(self) -> None:
        """Widths that are multiples of a smaller width; lengths of tables are not."""
        lengths = [length for length, _ in self.found.state.rows] + self.found.state.cut
        rows = {self.sizes.number(length) for length in lengths}
        widths = [(hint, name) for name, hint in self.stored(Origin.VARIABLE) if hint not in rows and "::dim_" in name]
        bases: list[tuple[int, str]] = []
        for hint, name in sorted(widths, key=lambda width: width[0]):
            base = next(((b, of) for b, of in bases if hint % b == 0 and hint // b in MULTIPLES), None)
            if base is None:
                bases.append((hint, name))
            else:
                times = hint // base[0]
                self.same(name, symbol(base[1]) * times)
                self.notes.append(f"the size {hint} is taken to be {times} times the size {base[0]}")

    def merge_products(self) -> None:
        """Make a width that has the value of a product of others (heads times their size) that product."""
        products = self._of_variables(lambda dim: len(dim.symbols) > 1)
        for name, hint in self.stored(Origin.VARIABLE):
            found = products.get(hint, [])
            if len(found) == 1 and name not in found[0].symbols:
                self.same(name, found[0])

    def settle_constants(self) -> None:
        """Number in shapes that nothing tied to another size: the size of a variable or feed that has this value, else
        numbers."""
        known: dict[int, set[str]] = defaultdict(set)
        for name, hint in self.stored(Origin.VARIABLE, Origin.STORED_FEED, Origin.USER, Origin.FEED):
            known[hint].add(name)
        used = set(self.free_in({dim for tensors in self.found.tensors for t in tensors for dim in t.shape or ()}))
        taken: Counter[int] = Counter()
        kept: dict[int, str] = {}
        for name, origin in list(self.sizes.origins.items()):
            if name in self.sizes.solved or origin > Origin.CONSTANT or name in self.sizes.unstored:
                continue
            hint = self.sizes.hints[name]
            like = known.get(hint, set())
            if len(like) == 1 and hint >= 2 * SMALLEST:
                self.same(name, symbol(next(iter(like))))
                if name in used:
                    taken[hint] += 1
            else:
                self.same(name, hint)
                if like and name in used:
                    kept.setdefault(hint, re.split(r":|\[", name)[0])
        self.notes += [
            f"the number {hint} of {node} and maybe others stays one, though a size has this value: --bind can name it"
            for hint, node in kept.items()
        ]
        self.notes += [
            f"{count} times the number {hint} is taken to be the size {hint}" for hint, count in taken.items()
        ]


class Names(Independent):
    """Names for what is left of the sizes in ``found``; what could not be derived keeps the name of its tensor.

    ``names`` are the new names of symbols, ``notes`` what was decided on the way. Loops run ``trips`` times; ``words``
    are other names for those of one letter.
    """

    def __init__(self, found: Propagation, trips: Sequence[Expr], words: Mapping[str, str]) -> None:
        super().__init__(found)
        self.reduce()
        self.names: dict[str, str] = {}
        taken = {n for n, origin in self.sizes.origins.items() if origin is Origin.USER}
        looped = {n for count in trips for n in self.sizes.now(count).symbols}
        for name, wanted in self._wanted(looped, taken):
            if name not in self.names and self.sizes.origins[name] is not Origin.USER:
                word = words.get(wanted, wanted)
                free = (w for w in (word, *_SPARE, *(f"{word}{i}" for i in range(2, 1000))) if w not in taken)
                self.names[name] = next(free)
                taken |= {wanted, self.names[name]}
        self._bounds = {name: self.final(most) for name, most in self.sizes.bounds.items()}
        self.notes += [f"{name} is taken to be the most it can be, {self._bounds[name]}" for name in self.full]

    def name_of(self, symbol: str) -> str:
        """Return the new name of a symbol."""
        return self.names.get(symbol, symbol)

    def final(self, expr: Expr) -> Expr:
        """Return an expression in the sizes that are left, under their names."""
        expr = self.sizes.now(expr)
        renamed = {name: symbol(self.names[name]) for name in expr.symbols if name in self.names}
        return expr.subs(renamed) if renamed else expr

    def hints(self, dims: Collection[Expr]) -> dict[str, int]:
        """Return values of all symbols: stored ones, and for the others an example at which ``dims`` are whole numbers,
        if there is one."""
        for example in EXAMPLES:
            hints = self._at(example)
            try:
                for name, most in self._bounds.items():
                    if name in hints:
                        hints[name] = max(1, most.evaluate(hints))
                values = [dim.subs(hints).value for dim in dims]
            except ArithmeticError:
                continue
            if all(isinstance(value, int) and value >= 0 for value in values):
                return hints
        return self._at(EXAMPLES[0])

    def _at(self, example: int) -> dict[str, int]:
        sizes, left = self.sizes, (name for name in self.sizes.origins if name not in self.sizes.solved)
        return {self.names.get(n, n): example if n in sizes.unstored else sizes.hints[n] for n in left}

    def _wanted(self, looped: Collection[str], taken: Collection[str]) -> Iterator[tuple[str, str]]:
        """Names that sizes should have, the best known first; ``taken`` are those given so far."""
        sizes = self.sizes
        fed = [n for n in self.free_in(d for s in self.feeds.values() for d in s) if n in sizes.unstored]
        for name in sizes.origins:
            if name.startswith("value(") and name not in sizes.solved:
                yield name, re.sub(r"\W", "_", name[6:-1].rpartition("/")[2])
        yield from self._wanted_of_feeds(fed, looped, taken)
        counted: Counter[str] = Counter()
        for shape in self.variables.values():
            counted.update(n for n in self.free_in(shape) if n not in sizes.unstored)
        rows = [n for n in self.free_in(length for length, _ in self.found.state.rows) if n in counted]
        if rows:
            yield max(rows, key=sizes.hints.__getitem__), "v"
        for (i, _), shape in self.feeds.items():
            # a batch; height and width of images; features, the last dim of other real tensors; else lengths
            real = is_float(str(self.nodes[i].attributes.get("dtype", "")))
            stored = [n for n in self.free_in(shape) if sizes.origins[n] is Origin.STORED_FEED]
            first, last = (sizes.now(shape[0]), sizes.now(shape[-1])) if len(shape) > 1 else (None, None)
            if stored and first == symbol(stored[0]):
                yield stored.pop(0), "b" if "b" not in taken else "s"
            if len(shape) == 4:
                yield from zip(stored, "HWf", strict=False)
            yield from ((name, "f" if real and last == symbol(name) else "s") for name in stored)
        images = any(len(shape) == 4 for shape in self.variables.values())
        for name in sorted(counted, key=lambda n: (-counted[n], -sizes.hints[n], n)):
            yield name, "c" if images else "h"

    def _wanted_of_feeds(
        self, fed: Sequence[str], looped: Collection[str], taken: Collection[str]
    ) -> Iterator[tuple[str, str]]:
        """Names of the sizes of feeds that the file does not have: lengths, images, batch."""
        for name in (name for name in fed if name in looped):
            yield name, "s" if "s" not in taken else "t"
        places = self.first_places()
        for shape in self.feeds.values():
            if len(shape) == 4:  # an image's height and width
                yield from zip((n for n in self.free_in(shape[1:]) if n in self.sizes.unstored), "HWf", strict=False)
        for name in sorted(fed, key=lambda name: places.get(name, NOWHERE)):
            yield name, "b" if "b" not in taken else "s" if "s" not in taken else "t"
