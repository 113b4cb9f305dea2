"""Genes that share a device: a problem whose genes are groups of those of another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from tensortide.errors import PlacementError
from tensortide.file_faults import reading
from tensortide.placements.arrays import Floats, Ints, Placements
from tensortide.placements.digest import digest_of
from tensortide.placements.genes import OnDevices, Sharing
from tensortide.placements.problem import Derived, Problem, computed


class Grouped(Derived):
    """``base`` with a gene for each group; ``group_of`` [genes of ``base``] numbers groups by their first gene.

    ``labels``: the group of each gene. Edges within a group vanish; several between two groups are one, whose transfers
    add up. Groups do not chain up: others may run between the genes of one.
    """

    chained = None

    def __init__(self, base: Problem, labels: Sequence[str]) -> None:
        super().__init__(base)
        numbers = {label: number for number, label in enumerate(dict.fromkeys(labels))}
        self.names = tuple(numbers)
        self.group_of = np.array([numbers[label] for label in labels], np.int64)
        self.work, self.memory, self.activations = map(self._added_up, (base.work, base.memory, base.activations))
        self.pins = {int(self.group_of[gene]): device for gene, device in base.pins.items()}
        transfers: dict[tuple[int, int], Floats] = {}
        copies: dict[tuple[int, int], float] = {}
        across = zip(self.group_of[base.edges].tolist(), base.transfers, base.copies.tolist(), strict=True)
        for (producer, consumer), transfer, copied in across:
            if producer != consumer:
                ends = (min(producer, consumer), max(producer, consumer))
                transfers[ends] = transfers[ends] + transfer if ends in transfers else transfer
                copies[ends] = copies.get(ends, 0.0) + copied
        pairs = sorted(transfers)
        self.edges = np.array(pairs, np.int64).reshape(-1, 2)
        self.transfers = np.array([transfers[ends] for ends in pairs]).reshape(-1, base.devices, base.devices)
        self.copies = np.array([copies[ends] for ends in pairs])

    def _added_up(self, values: Floats) -> Floats:
        found = np.zeros((len(self.names), *values.shape[1:]))
        np.add.at(found, self.group_of, values)
        return found

    @computed
    def digest(self) -> str:
        return digest_of((self.base.digest, self.names, self.group_of))

    @computed
    def sharing(self) -> Sharing | None:
        base = self.base.sharing
        if base is None:
            return None
        most = np.zeros(len(self.names), np.int64)
        np.maximum.at(most, self.group_of, base.most)
        return base._replace(most=most)

    def evaluate(self, placements: Placements) -> tuple[Floats, Floats]:
        return self.base.evaluate(self.expanded(placements))

    def on_devices(self, genes: Sequence[int]) -> tuple[OnDevices, ...]:
        return self.base.on_devices(self.expanded(np.array(genes)).tolist())

    def expanded(self, placements: Placements) -> Placements:
        """Placements of the genes of ``base`` [k, genes], or one [genes]."""
        return np.ascontiguousarray(placements[..., self.group_of])


def grouped(problem: Problem, rule: str) -> Problem:
    """Group the genes of ``problem`` by ``rule``.

    ``none``; ``block``: up to the first ``/``; ``prefix:N`` or ``prefix:TEXT``: equal first N characters, or equal up
    to the first TEXT; ``file:PATH``: a JSON object from gene to group, or a list of lists of genes; ``coarsen:N``:
    chains and light genes merged until N groups are left. Raises PlacementError for any other rule.
    """
    kind, _, argument = rule.partition(":")
    names = problem.names
    if kind == "none":
        return problem
    if kind == "block":
        return Grouped(problem, [name.partition("/")[0] for name in names])
    if kind == "prefix" and argument.isdecimal() and int(argument):
        return Grouped(problem, [name[: int(argument)] for name in names])
    if kind == "prefix" and argument and not argument.removeprefix("-").isdecimal():
        return Grouped(problem, [name.partition(argument)[0] for name in names])
    if kind == "file" and argument:
        return Grouped(problem, _labels_of_file(Path(argument), names))
    if kind == "coarsen" and argument.isdecimal() and int(argument):
        return Grouped(problem, coarsened(problem, int(argument)))
    raise PlacementError(
        f"{rule!r} is no way to group layers: none, block, prefix:N, prefix:TEXT, file:PATH or coarsen:N (N from 1)."
    )


def base_of(problem: Problem) -> tuple[Problem, Ints]:
    """The problem whose genes are not grouped, and the group of each of them."""
    if isinstance(problem, Grouped):
        return problem.base, problem.group_of
    return problem, np.arange(len(problem.names))


def _labels_of_file(path: Path, names: Sequence[str]) -> list[str]:
    """Read the group of each gene; genes that the file lacks stand alone."""
    try:
        with reading(path, PlacementError):
            read = msgspec.json.decode(path.read_bytes(), type=dict[str, str | int] | list[list[str]])
    except (OSError, msgspec.MsgspecError) as error:
        raise PlacementError(f"{path} has no groups of layers: {error}") from error
    if isinstance(read, list):
        labels: Mapping[str, object] = {name: group[0] for group in read for name in group}
    else:
        labels = {name: f"group {group}" for name, group in read.items()}
    return [str(labels.get(name, name)) for name in names]


def coarsened(problem: Problem, target: int) -> list[str]:
    """Label the genes by groups: chains and light genes merged with a neighbour until ``target`` groups are left.

    The two groups joined by an edge that have the least work together are merged first, those in a chain before others.
    """
    genes = len(problem.names)
    work = problem.work.mean(axis=1).tolist()
    members = {gene: [gene] for gene in range(genes)}
    after: dict[int, set[int]] = {gene: set() for gene in range(genes)}
    before: dict[int, set[int]] = {gene: set() for gene in range(genes)}
    for producer, consumer in problem.edges.tolist():
        after[producer].add(consumer)
        before[consumer].add(producer)
    while len(members) > target:
        pairs = [
            (not (len(after[one]) == 1 == len(before[two])), work[one] + work[two], one, two)
            for one, found in after.items()
            for two in found
        ]
        if not pairs:
            break
        _, _, one, two = min(pairs)
        members[one] += members.pop(two)
        work[one] += work[two]
        for ways, back in ((after, before), (before, after)):
            for other in ways.pop(two):
                back[other].discard(two)
                if other != one:
                    ways[one].add(other)
                    back[other].add(one)
            ways[one].discard(one)
    labels = [""] * genes
    for group in members.values():
        for gene in group:
            labels[gene] = problem.names[group[0]]
    return labels
