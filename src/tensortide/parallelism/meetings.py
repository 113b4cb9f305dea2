"""Meetings of the ranks of a job: the collectives and messages of their steps, matched by their order in each group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tensortide.errors import CaptureError
from tensortide.graph.collectives import COLLECTIVES
from tensortide.graph.communication import kind_of, payload_bytes
from tensortide.graph.model import Graph, OpView
from tensortide.graph.ways import Way, ways


class Meeting(NamedTuple):
    """A collective or message: the op of each captured rank that takes part in it, by rank."""

    way: Way
    kind: str
    nbytes: int
    ops: dict[int, int]

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks between which data move."""
        return self.way.members


class _Part(NamedTuple):
    """The part of one rank in a meeting."""

    rank: int
    op: OpView
    kind: str
    nbytes: int

    def __str__(self) -> str:
        return f"rank {self.rank} waits in {self.kind} of {self.nbytes:,} bytes (op {self.op.index}{_line(self.op)})"


def meetings(graphs: Mapping[int, Graph]) -> list[Meeting]:
    """Match the collectives and messages of the captured ranks ``graphs``, those of each way in order.

    Ranks of a group that are not among them are taken to do as those that are.

    Raises CaptureError for what does not match, which says which rank waits for which.
    """
    queues: dict[Way, dict[int, list[_Part]]] = defaultdict(lambda: defaultdict(list))
    for rank, graph in graphs.items():
        for way, part in _parts(rank, graph):
            queues[way][rank].append(part)
    found: list[Meeting] = []
    for way, parts in queues.items():
        ranks = [rank for rank in way.members if rank in graphs]
        columns = [parts.get(rank, []) for rank in ranks]
        for number in range(max(map(len, columns))):
            _check(way, number, columns, ranks)
            row = [column[number] for column in columns]
            ops = {part.rank: part.op.index for part in row}
            found.append(Meeting(way, row[0].kind, max(part.nbytes for part in row), ops))
    return found


def _parts(rank: int, graph: Graph) -> Iterator[tuple[Way, _Part]]:
    """Yield the collectives and messages of a rank, each with its way."""
    for op, way in ways(rank, graph):
        yield way, _Part(rank, op, kind_of(op.name) or op.name, payload_bytes(op))


def _check(way: Way, number: int, columns: Sequence[Sequence[_Part]], ranks: Sequence[int]) -> None:
    """Raise CaptureError unless all ``ranks`` have a part ``number`` of the same kind and, where it moves as much of
    each, of the same bytes."""
    there = [column[number] for column in columns if number < len(column)]
    first = there[0]
    absent = [rank for rank, column in zip(ranks, columns, strict=True) if number >= len(column)]
    among = f"among ranks {listed(way.ranks)}" if way.sender < 0 else f"from rank {way.sender} to rank {way.receiver}"
    if absent:
        others = f"rank{'s' * (len(absent) > 1)} {listed(absent)}"
        raise CaptureError(f"{first}, number {number + 1} {among}, for {others}, which has no more of them")
    whole = way.sender >= 0 or (first.kind in COLLECTIVES and not COLLECTIVES[first.kind].divided)
    for other in there[1:]:
        if other.kind != first.kind or (whole and other.nbytes != first.nbytes):
            raise CaptureError(f"{first}, number {number + 1} {among}, but {other}")


def listed(ranks: Sequence[int]) -> str:
    """Return the first few ranks, separated by commas, and of how many they are."""
    most = 4
    return ", ".join(map(str, ranks[:most])) + f", ... ({len(ranks)})" * (len(ranks) > most)


def _line(op: OpView) -> str:
    return "" if op.source is None else f", {Path(op.source.file).name}:{op.source.line}"
