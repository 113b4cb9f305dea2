"""Genes that share a device: a problem whose genes are groups of those of another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from tensortide.errors import PlacementError
from tensortide.file_faults import reading
from tensortide.placements.bounds import Bounds
from tensortide.placements.digest import digest_of
from tensortide.placements.genes import Sharing
from tensortide.placements.search.problem import Floats, Ints, OnDevicesOf, Placements, Problem


@dataclass(frozen=True)
class Grouped(OnDevicesOf):
    """``base`` with one gene for each group; ``group_of`` [genes of ``base``] numbers them by their first gene.

    Edges within a group vanish; several between two groups are one, whose transfers add up.
    """

    base: Problem
    names: tuple[str, ...]
    group_of: Ints
    edges: Ints
    work: Floats
    transfers: Floats
    copies: Floats
    memory: Floats

    @property
    def digest(self) -> str:
        return digest_of((self.base.digest, self.names, self.group_of))

    @property
    def batches(self) -> int:
        return self.base.batches

    @property
    def penalty_ms_per_byte(self) -> float:
        return self.base.penalty_ms_per_byte

    chained = None
    """Groups do not chain up: others may run between the genes of one."""

    @property
    def activations(self) -> Floats:
        found = np.zeros(len(self.names))
        np.add.at(found, self.group_of, self.base.activations)
        return found

    @property
    def sharing(self) -> Sharing | None:
        base = self.base.sharing
        if base is None:
            return None
        most = np.zeros(len(self.names), np.int64)
        np.maximum.at(most, self.group_of, base.most)
        return base._replace(most=most)

    @property
    def pins(self) -> Mapping[int, int]:
        return {int(self.group_of[gene]): device for gene, device in self.base.pins.items()}

    def evaluate(self, placements: Placements) -> tuple[Floats, Floats]:
        return self.base.evaluate(self.expanded(placements))

    def expanded(self, placements: Placements) -> Placements:
        """Placements of the genes of ``base`` [k, genes], or one [genes]."""
        return np.ascontiguousarray(placements[..., self.group_of])

    def bounds(self) -> Bounds:
        return self.base.bounds()


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
        return _of_labels(problem, [name.partition("/")[0] for name in names])
    if kind == "prefix" and argument.isdecimal() and int(argument):
        return _of_labels(problem, [name[: int(argument)] for name in names])
    if kind == "prefix" and argument and not argument.removeprefix("-").isdecimal():
        return _of_labels(problem, [name.partition(argument)[0] for name in names])
    if kind == "file" and argument:
        return _of_labels(problem, _labels_of_file(Path(argument), names))
    if kind == "coarsen" and argument.isdecimal() and int(argument):
        return _of_labels(problem, coarsened(problem, int(argument)))
    raise PlacementError(
        f"{rule!r} is no way to group layers: none, block, prefix:N, prefix:TEXT, file:PATH or coarsen:N (N from 1)."
    )


def base_of(problem: Problem) -> tuple[Problem, Ints]:
    """The problem whose genes are not grouped, and the group of each of them."""
    if isinstance(problem, Grouped):
        return problem.base, problem.group_of
    return problem, np.arange(len(problem.names))


def _of_labels(problem: Problem, labels: Sequence[str]) -> Grouped:
    """Group the genes of equal label; groups are in the order of their first gene."""
    numbers = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    group_of = np.array([numbers[label] for label in labels], np.int64)
    count, devices = len(numbers), problem.devices
    work, memory = np.zeros((count, devices)), np.zeros(count)
    np.add.at(work, group_of, problem.work)
    np.add.at(memory, group_of, problem.memory)
    pairs: dict[tuple[int, int], Floats] = {}
    copies: dict[tuple[int, int], float] = {}
    across = zip(group_of[problem.edges].tolist(), problem.transfers, problem.copies.tolist(), strict=True)
    for (producer, consumer), transfer, copied in across:
        if producer != consumer:
            ends = (min(producer, consumer), max(producer, consumer))
            pairs[ends] = pairs[ends] + transfer if ends in pairs else transfer
            copies[ends] = copies.get(ends, 0.0) + copied
    edges = np.array(sorted(pairs), np.int64).reshape(-1, 2)
    transfers = np.array([pairs[ends] for ends in sorted(pairs)]).reshape(-1, devices, devices)
    copied = np.array([copies[ends] for ends in sorted(pairs)])
    return Grouped(problem, tuple(numbers), group_of, edges, work, transfers, copied, memory)


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
