"""Short names for the independent sizes of a file: batch, time, hidden, vocabulary, ...; and values for an example."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tensortide.expr import Expr, symbol
from tensortide.importers.tf1.program import Shape
from tensortide.importers.tf1.reading.link import Linked
from tensortide.importers.tf1.sizes.merge import Independent
from tensortide.importers.tf1.sizes.propagate import Propagated
from tensortide.importers.tf1.sizes.unify import Origin

__all__ = ["Binding", "exemplified", "named"]

EXAMPLES = (32, 64, 120, 128, 256, 1024)
"""Values of unknown sizes where an example is needed: the first at which every size is a whole number."""

_SPARE = "nmpqrudefgijklotwxyz"


@dataclass(slots=True)
class Binding:
    """The outcome: what each symbol becomes, values of the symbols that are left (``free`` are those for which the file
    has none), the most that sizes decided by data can be, and what was decided on the way."""

    substitution: dict[str, Expr] = field(default_factory=dict)
    hints: dict[str, int] = field(default_factory=dict)
    free: list[str] = field(default_factory=list)
    bounds: dict[str, Expr] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def exemplified(binding: Binding, dims: Collection[Expr]) -> dict[str, int]:
    """Values for every symbol at which ``dims`` are whole numbers, if an example does that."""
    for example in EXAMPLES:
        hints = {**binding.hints, **dict.fromkeys(binding.free, example)}
        try:
            for name, most in binding.bounds.items():
                if name in hints:
                    hints[name] = max(1, most.evaluate(hints))
            values = [dim.subs(hints).value for dim in dims]
        except ArithmeticError:
            continue
        if all(isinstance(value, int) and value >= 0 for value in values):
            return hints
    return dict(binding.hints)


def named(
    graph: Linked, found: Propagated, trips: Sequence[Expr], keep: Collection[int], masks: bool = False
) -> Binding:
    """Names for what ``found`` leaves open. ``keep`` are stored sizes that stay numbers; ``masks``: sizes that data
    decide are symbols, not the most that they can be."""
    left = Independent(graph, found, keep)
    left.reduce(masks)
    namer = _Namer(left)
    namer.give_names([found.sizes.now(count) for count in trips])
    return namer.binding


class _Namer:
    def __init__(self, left: Independent) -> None:
        self.left = left
        self.sizes = left.sizes
        self.binding = Binding(notes=left.notes)

    def give_names(self, trips: Sequence[Expr]) -> None:
        """Short names for the sizes that are left; what could not be derived keeps the name of its tensor."""
        taken = {n for n, origin in self.sizes.origins.items() if origin is Origin.USER}
        chosen: dict[str, str] = {}

        def give(name: str, wanted: str) -> None:
            if name not in chosen and self.sizes.origins[name] is not Origin.USER:
                free = (w for w in (wanted, *_SPARE, *(f"{wanted}{i}" for i in range(2, 1000))) if w not in taken)
                chosen[name] = next(free)
                taken.add(chosen[name])

        fed = [n for n in self.left.free_in(d for s in self.left.feeds.values() for d in s) if n in self.sizes.unstored]
        for name in self._value_feeds():
            give(name, re.sub(r"\W", "_", name[6:-1].rpartition("/")[2]))
        looped = {n for count in trips for n in count.symbols}
        for name in fed:
            if name in looped:
                give(name, "s")
        for name in sorted(fed, key=self._first_place):
            give(name, "b" if "b" not in taken else "s")
        self._name_stored(give)
        self._fill_in(chosen)

    def _value_feeds(self) -> list[str]:
        return [n for n in self.sizes.origins if n.startswith("value(") and n not in self.sizes.solved]

    def _first_place(self, name: str) -> int:
        return min(
            s.index(symbol(name)) if symbol(name) in s else 9 for s in map(self.left.current, self.left.feeds.values())
        )

    def _name_stored(self, give: Callable[[str, str], None]) -> None:
        counted: Counter[str] = Counter()
        for shape in self.left.variables.values():
            counted.update(n for n in self.left.free_in(shape) if n not in self.sizes.unstored)
        rows = [n for n in self.left.free_in(length for length, _ in self.left.found.state.rows) if n in counted]
        if rows:
            give(max(rows, key=lambda n: self.sizes.hints[n]), "v")
        for (i, _), shape in self.left.feeds.items():
            self._name_feed(i, self.left.current(shape), give)
        images = any(len(shape) == 4 for shape in self.left.variables.values())
        for name in sorted(counted, key=lambda n: (-counted[n], -self.sizes.hints[n], n)):
            give(name, "c" if images else "h")

    def _name_feed(self, i: int, shape: Shape, give: Callable[[str, str], None]) -> None:
        """Height and width of images; features, the last dim of other real tensors; else lengths."""
        real = "float" in str(self.left.graph.nodes[i].attributes.get("dtype", ""))
        stored = [n for n in self.left.free_in(shape) if self.sizes.origins[n] is Origin.STORED_FEED]
        if len(shape) == 4:
            for name, wanted in zip(stored, "HWf", strict=False):
                give(name, wanted)
        for name in stored:
            give(name, "f" if real and shape[-1] == symbol(name) else "s")

    def _fill_in(self, chosen: Mapping[str, str]) -> None:
        """Values of what is left: the stored ones, an example for everything else."""
        sizes, binding = self.sizes, self.binding
        binding.substitution = {name: symbol(short) for name, short in chosen.items()}
        for name in sizes.origins:
            if name not in sizes.solved:
                final = chosen.get(name, name)
                binding.hints[final] = EXAMPLES[0] if name in sizes.unstored else sizes.hints[name]
                if name in sizes.unstored:
                    binding.free.append(final)
        for name, most in sizes.bounds.items():
            binding.bounds[name] = sizes.now(most).subs(binding.substitution)
        binding.notes += [
            f"{name} is taken to be the most it can be, {binding.bounds[name]}" for name in self.left.full
        ]
