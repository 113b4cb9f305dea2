"""A launch of several ranks as it is: the step of the captured rank with its own collectives, and its memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec

from tensortide.errors import DegreesError, ExitStatus, TensortideError
from tensortide.graph.communication import kind_of
from tensortide.graph.model import Graph
from tensortide.graph.ways import rank_of
from tensortide.parallelism.joined import ExchangeRow, JoinedStep, joined
from tensortide.recorder import resolver
from tensortide.recorder.script_command import PREFIX
from tensortide.shown import Show, Shown
from tensortide.studies.fit.verdict import Fits, Verdict, verdict
from tensortide.studies.fit.whole_card import CardRow
from tensortide.studies.scale.stacks import Stack, stack_of, with_degrees
from tensortide.timing.cards import of_bytes
from tensortide.timing.collectives import Nodes
from tensortide.timing.estimate import estimate
from tensortide.timing.estimates import Estimate


class LaunchRow(msgspec.Struct, frozen=True):
    """A launch: its step, with its interval, as ``parallelism.joined`` plays that of the captured rank, without the
    times of ``unknown`` ops; and what a rank takes of a device. ``reason`` says why it could not be captured."""

    launch: Annotated[str, Show("Launch", fold=True)]
    step_ns: Annotated[int | None, Show("Step")] = None
    low_ns: int | None = None
    high_ns: int | None = None
    unknown: Annotated[int, Show("untimed ops", if_any=True)] = 0
    computing_ns: Annotated[int | None, Show("alone")] = None
    exchange_ns: Annotated[int | None, Show("collectives")] = None
    reserved_bytes: Annotated[int | None, Show("Memory")] = None
    least_bytes: int | None = None
    most_bytes: int | None = None
    fits: Annotated[Fits | None, Show()] = None
    reason: Annotated[str, Show("", fold=True)] = ""


class Launched(Shown, msgspec.Struct, frozen=True, dict=True):
    """A launch as it is, the first of ``rows``; others are the same command with other values of its own options.
    ``groups`` and ``card`` are of the first; ``offers`` says how to try other degrees."""

    SECTION = "launched"
    name: str
    ranks: int
    nodes: Nodes
    rows: tuple[LaunchRow, ...]
    groups: tuple[ExchangeRow, ...]
    card: tuple[CardRow, ...]
    offers: str
    remarks: tuple[str, ...] = ()

    @property
    def table(self) -> str:
        """The key of the table that a CSV file has."""
        return "launches" if len(self.rows) > 1 else "groups"

    @property
    def status(self) -> ExitStatus:
        """HOLDS if one fits, FAILS if none can, else UNDECIDED."""
        found = {row.fits for row in self.rows}
        if "fits" in found:
            return ExitStatus.HOLDS
        return ExitStatus.UNDECIDED if "unsure" in found else ExitStatus.FAILS


@dataclass(frozen=True)
class Launch:
    """The command of a launch (empty for a file), ``nodes`` for its ranks, and the bytes that a device has for it
    (None: unknown)."""

    command: str
    nodes: Nodes
    memory_bytes: int | None

    def study(self, graph: Graph, degrees: Mapping[str, int], captured: Callable[[str], Graph]) -> Launched:
        """Predict the launch that ``graph`` was captured of, and the same with other ``degrees``.

        Raises DegreesError if the command has no option for one of them.
        """
        step, memory = self._joined(graph), self._memory(graph)
        rows = [_row("as launched", step, memory)]
        if degrees:
            rows.append(self._changed(degrees, captured))
        ranks = max(map(len, graph.meta.groups.values()))
        remarks, card = tuple(_remarks(graph)), memory.whole_card
        return Launched(
            graph.meta.workload, ranks, self.nodes, tuple(rows), step.exchanged, card, _offers(self.command), remarks
        )

    def _joined(self, graph: Graph) -> JoinedStep:
        """The step of the captured rank, whose peers are taken to be ready when it is."""
        rank = rank_of(graph)
        return joined({rank: graph}, {rank: estimate(graph, self.nodes.device, resolver=resolver)}, self.nodes)

    def _memory(self, graph: Graph) -> Verdict:
        card = None if self.memory_bytes is None else of_bytes(self.memory_bytes)
        return verdict(graph, card=card, timed=False, resolver=resolver)

    def _changed(self, degrees: Mapping[str, int], captured: Callable[[str], Graph]) -> LaunchRow:
        stack = known_degrees(self.command, degrees)
        label = " ".join(f"{stack.options[degree]} {value}" for degree, value in degrees.items())
        try:
            graph = captured(PREFIX + with_degrees(self.command, stack, degrees))
        except TensortideError as error:
            return LaunchRow(label, reason=str(error))
        return _row(label, self._joined(graph), self._memory(graph))


def _row(label: str, step: JoinedStep, memory: Verdict) -> LaunchRow:
    time, exchange = step.step_time, sum(step.times, Estimate())
    return LaunchRow(
        label,
        round(time.time_ns),
        round(time.low_ns),
        round(time.high_ns),
        time.unknown,
        step.computing_ns,
        round(exchange.time_ns),
        memory.reserved_bytes,
        memory.least_bytes,
        memory.most_bytes,
        None if memory.asked is None else memory.asked.fits,
    )


def known_degrees(command: str, degrees: Mapping[str, int]) -> Stack:
    """The stack of a launch command. Raises DegreesError if it has no option for one of the ``degrees``."""
    stack = stack_of(command)
    missing = [degree for degree in degrees if stack is None or degree not in stack.options]
    if stack is None or missing:
        raise DegreesError(f"--{missing[0].replace('_', '-')} for a launch: {_offers(command)}")
    return stack


def _remarks(graph: Graph) -> Iterator[str]:
    if any(kind_of(op.name) == "send_recv" for op in graph):
        yield (
            "The time is that of one rank: waits for other stages of the pipeline are not in it. "
            "tensortide time --all-stages has them, and the memory of each stage."
        )


def _offers(command: str) -> str:
    """The way to other degrees, in words."""
    stack = stack_of(command)
    if stack is not None and stack.options:
        options = ", ".join(f"--{name.replace('_', '-')} ({option})" for name, option in stack.options.items())
        return f"the same command with other values of {stack.name}'s own options: {options}"
    why = stack.why_not if stack is not None else "no options for degrees are known of this program"
    return (
        f"{why}: change them in the command after --, as the program names them, and compare; or give a script of one "
        "process, without a launcher, whose step is divided"
    )
