"""Rows of a tree in which siblings that are alike share a row, called ``blocks.[0-11]``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from tensortide.graph.module_paths import as_one

T = TypeVar("T", bound=Any)


class Folding(Generic[T]):
    """Rules of folding, for nodes with a name and ``children``. Nodes that share a row have children that match by
    position."""

    def alike(self, one: T, other: T) -> bool:
        """Tell whether two numbered siblings share a row."""
        raise NotImplementedError

    def only_encloses(self, some: Sequence[T]) -> bool:
        """Tell whether nodes say nothing themselves, and share the row inside if there is one."""
        raise NotImplementedError

    def name(self, some: Sequence[T]) -> str:
        """Name the nodes of one row."""
        return as_one([one.name for one in some])

    def stands(self, same: Sequence[T]) -> bool:
        """Tell whether children of one position are in any row."""
        return True

    def inside(self, some: Sequence[T]) -> list[list[T]]:
        """Group the children of the nodes of one row by the rows that they share."""
        groups: list[list[T]] = []
        for same in filter(self.stands, zip(*(one.children for one in some), strict=True)):
            if groups and self.alike(groups[-1][-1], same[0]):
                groups[-1].extend(same)
            else:
                groups.append([*same])
        return groups

    def rows(
        self, groups: Iterable[Sequence[T]], depth: int, level: int = 0, prefix: str = ""
    ) -> Iterator[tuple[Sequence[T], str, int]]:
        """Yield the nodes, the name and the level of each row, parents first, to ``depth`` levels below ``groups``."""
        for some in groups:
            inside, name = self.inside(some), prefix + self.name(some)
            if len(inside) == 1 and self.only_encloses(some):
                yield from self.rows(inside, depth, level, "" if name.startswith("(") else f"{name}.")
                continue
            yield some, name, level
            if level < depth:
                yield from self.rows(inside, depth, level + 1)
