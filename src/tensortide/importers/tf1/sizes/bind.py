"""Short names for the independent sizes of a file: batch, time, hidden, vocabulary, ...; and values for an example."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from tensortide.expr import Expr, symbol
from tensortide.importers.tf1.sizes.merge import Independent
from tensortide.importers.tf1.sizes.propagate import Propagation
from tensortide.importers.tf1.sizes.unify import Origin

__all__ = ["Names"]

EXAMPLES = (32, 64, 120, 128, 256, 1024)
"""Values of unknown sizes where an example is needed: the first at which every size is a whole number."""

_SPARE = "nmpqrudefgijklotwxyz"


class Names:
    """Names for what ``found`` leaves open; what could not be derived keeps the name of its tensor.

    ``names`` are the new names of symbols, ``notes`` what was decided on the way. Loops run ``trips`` times.
    """

    def __init__(self, found: Propagation, trips: Sequence[Expr]) -> None:
        self.left = Independent(found)
        self.left.reduce()
        self.sizes = found.sizes
        self.names: dict[str, str] = {}
        taken = {n for n, origin in self.sizes.origins.items() if origin is Origin.USER}
        looped = {n for count in trips for n in self.sizes.now(count).symbols}
        for name, wanted in self._wanted(looped, taken):
            if name not in self.names and self.sizes.origins[name] is not Origin.USER:
                free = (w for w in (wanted, *_SPARE, *(f"{wanted}{i}" for i in range(2, 1000))) if w not in taken)
                self.names[name] = next(free)
                taken.add(self.names[name])
        self._bounds = {name: self.final(most) for name, most in self.sizes.bounds.items()}
        full = (f"{name} is taken to be the most it can be, {self._bounds[name]}" for name in self.left.full)
        self.notes = [*self.left.notes, *full]

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
        left, sizes = self.left, self.sizes
        fed = [n for n in left.free_in(d for s in left.feeds.values() for d in s) if n in sizes.unstored]
        for name in sizes.origins:
            if name.startswith("value(") and name not in sizes.solved:
                yield name, re.sub(r"\W", "_", name[6:-1].rpartition("/")[2])
        yield from ((name, "s") for name in fed if name in looped)
        for name in sorted(fed, key=self._first_place):
            yield name, "b" if "b" not in taken else "s"
        counted: Counter[str] = Counter()
        for shape in left.variables.values():
            counted.update(n for n in left.free_in(shape) if n not in sizes.unstored)
        rows = [n for n in left.free_in(length for length, _ in left.found.state.rows) if n in counted]
        if rows:
            yield max(rows, key=sizes.hints.__getitem__), "v"
        for (i, _), shape in left.feeds.items():
            # height and width of images; features, the last dim of other real tensors; else lengths
            real = "float" in str(left.nodes[i].attributes.get("dtype", ""))
            stored = [n for n in left.free_in(shape) if sizes.origins[n] is Origin.STORED_FEED]
            if len(shape) == 4:
                yield from zip(stored, "HWf", strict=False)
            last = sizes.now(shape[-1]) if shape else None
            yield from ((name, "f" if real and last == symbol(name) else "s") for name in stored)
        images = any(len(shape) == 4 for shape in left.variables.values())
        for name in sorted(counted, key=lambda n: (-counted[n], -sizes.hints[n], n)):
            yield name, "c" if images else "h"

    def _first_place(self, name: str) -> int:
        shapes = map(self.left.current, self.left.feeds.values())
        return min(shape.index(symbol(name)) if symbol(name) in shape else 9 for shape in shapes)
