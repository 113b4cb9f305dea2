"""A traced JAX program without JAX: the primitives of a jaxpr in order, calls inlined, loops and conditionals kept.

Everything after tracing works on this form, so it can be built by hand and does not depend on the version of JAX.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from tensortide.graph.model import Phase, Value


@dataclass(eq=False, slots=True)
class Cell:
    """One value of the program. ``literal``: the number that it is, where the program spells it out."""

    shape: tuple[int, ...]
    dtype: str
    literal: bool | int | float | complex | None = None
    name: str = ""


class SourceInfo(NamedTuple):
    """Where a step comes from: the name stack of JAX (``transpose(jvp(MLP))/Dense_0``), the functions jitted around it,
    and the line of the user's code (file, line, function)."""

    stack: str = ""
    functions: tuple[str, ...] = ()
    source: tuple[str, int, str] | None = None


NOWHERE = SourceInfo()


@dataclass(eq=False, slots=True)
class Step:
    """One primitive. ``kept``: it has an effect, so it runs though nobody reads its results. ``mutates``: the positions
    of the inputs that it writes. ``phase`` and ``recompute`` are those of ``phases.classify``."""

    name: str
    inputs: list[Cell]
    outputs: list[Cell]
    arguments: Mapping[str, Value] = field(default_factory=dict)
    place: SourceInfo = NOWHERE
    kept: bool = False
    mutates: tuple[int, ...] = ()
    phase: Phase = Phase.FORWARD
    recompute: bool = False


class Carry(NamedTuple):
    """A value that a loop carries: ``initial`` before the loop, ``start`` as an iteration begins, ``following`` as it
    ends, ``final`` after the loop."""

    initial: Cell
    start: Cell
    following: Cell
    final: Cell


class Slice(NamedTuple):
    """``part``: the row of ``whole`` that an iteration reads, or adds."""

    whole: Cell
    part: Cell


@dataclass(eq=False, slots=True)
class Loop:
    """A scan or a while loop. ``decides``: values that the loop itself reads (its condition), inside and before it.

    ``assumed``: nobody knows the trip count, for the reason ``why``; ``most``: a bound on it that its condition states,
    0 if there is none.
    """

    name: str
    trips: int
    body: list[Node]
    carries: list[Carry]
    read: list[Slice] = field(default_factory=list)
    written: list[Slice] = field(default_factory=list)
    decides: list[Cell] = field(default_factory=list)
    place: SourceInfo = NOWHERE
    assumed: bool = False
    most: int = 0
    why: str = ""


class Arm(NamedTuple):
    """One branch of a conditional: its nodes and its results."""

    nodes: list[Node]
    results: list[Cell]


@dataclass(eq=False, slots=True)
class Choice:
    """A conditional: one of ``arms`` runs, as ``selector`` says; ``outputs`` are its results."""

    selector: Cell
    arms: list[Arm]
    outputs: list[Cell]
    place: SourceInfo = NOWHERE


Node: TypeAlias = Step | Loop | Choice


@dataclass(frozen=True, slots=True)
class Leaf:
    """An array among the arguments or results: its path (``params``, ``dense``, ``kernel``), in whose container of the
    optimizer library it lies, and whether the caller gives its memory away."""

    path: tuple[str, ...]
    cell: Cell
    optimizer: bool = False
    donated: bool = False
    buffer: bool = False
    trainable: bool | None = None


@dataclass(slots=True)
class Program:
    """A traced function. ``updates`` pairs arguments with the results that have their place in the same container.

    ``devices`` are those that run it together under ``shard_map``, ``partitioned`` those over which XLA spreads its
    arrays by itself.
    """

    name: str
    nodes: list[Node]
    inputs: list[Leaf]
    constants: list[Cell]
    outputs: list[Cell]
    updates: list[tuple[Leaf, Cell]] = field(default_factory=list)
    devices: int = 1
    partitioned: int = 1
    version: str = ""


def steps(nodes: Sequence[Node], runs: int = 1) -> Iterator[tuple[Step, int]]:
    """Yield every step at any depth, and how often it runs if every conditional takes its branch."""
    for node in nodes:
        if isinstance(node, Step):
            yield node, runs
        elif isinstance(node, Loop):
            yield from steps(node.body, runs * node.trips)
        else:
            for arm in node.arms:
                yield from steps(arm.nodes, runs)


def loops(nodes: Sequence[Node]) -> Iterator[Loop]:
    """Yield every loop, outer ones first."""
    for node in nodes:
        if isinstance(node, Loop):
            yield node
            yield from loops(node.body)
        elif isinstance(node, Choice):
            for arm in node.arms:
                yield from loops(arm.nodes)


def made(node: Node) -> Iterator[Cell]:
    """Yield what ``node`` makes for the nodes after it."""
    if isinstance(node, Loop):
        yield from (carry.final for carry in node.carries)
        yield from (row.whole for row in node.written)
    else:
        yield from node.outputs


def taken(node: Node) -> Iterator[Cell]:
    """Yield what ``node`` reads, at any depth; some of it may be made inside."""
    if isinstance(node, Step):
        yield from node.inputs
    elif isinstance(node, Loop):
        yield from (carry.initial for carry in node.carries)
        yield from (row.whole for row in node.read)
        yield from node.decides
        for inner in node.body:
            yield from taken(inner)
    else:
        yield node.selector
        for arm in node.arms:
            yield from arm.results
            for inner in arm.nodes:
                yield from taken(inner)


# --- modules of name stacks ----------------------------------------------------------------------------

_WRAPPED = re.compile(r"\b\w+\(([^()]*)\)")
_NAME = re.compile(r"[A-Za-z_]\w*")
_NOT_MODULES = frozenset(("rematted_computation", "checkpoint", "remat", "while", "body", "cond", "scan", "shard_map"))


def kind_of(path: str) -> str:
    """Return the class that a module's name suggests: ``Dense`` of ``MLP.Dense_0``."""
    return re.sub(r"_\d+$", "", path.rpartition(".")[2])


def module_of(place: SourceInfo) -> str:
    """Return the module path of ``place``: the names of its stack without transformations, after the functions that are
    jitted around it.

    >>> module_of(SourceInfo("transpose(jvp(MLP))/Dense_0"))
    'MLP.Dense_0'
    """
    stack = place.stack
    while (plain := _WRAPPED.sub(r"\1", stack)) != stack:
        stack = plain
    names = [name for name in stack.split("/") if _NAME.fullmatch(name) and name not in _NOT_MODULES]
    return ".".join((*place.functions, *names))
