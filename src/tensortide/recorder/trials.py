"""Trials of other values in place of stand-ins, to find out which of them the ops of a step depend on.

A trial runs the step once more. All numbers are tried together as larger and as smaller ones and as NaN, and one by one
if that changes the ops; then each condition is turned, and the comparisons of each number that is compared with
something. What only a trial reaches is turned as well. Nothing here needs PyTorch.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, cast

from tensortide.expr import computed, conditions
from tensortide.graph.model import Graph
from tensortide.recorder.readings import TRIED, UNCHECKED, Finding, Reading, ReadSite, Use, Verdict
from tensortide.units import format_bytes

MOST_PLACES = 8
"""Most places that are tried one by one."""
MOST_OPS = 400_000
"""Ops of all trials of one step, after which no other begins: about half a minute."""

How = Literal["larger", "smaller", "nan", "turned", "true", "false"]
"""A number becomes larger, smaller or no number, a condition is turned, comparisons that are false become true, or the
reverse."""
_SAID: dict[How, str] = {
    "larger": "with a larger value",
    "smaller": "with a smaller value",
    "nan": "with NaN",
    "turned": "with {}",
    "true": "where a comparison holds that does not",
    "false": "where a comparison does not hold that does",
}

Op = Sequence[object]
"""Name of an op, the shapes of its inputs and outputs, and the bytes that are resident while it runs."""


class Trial(NamedTuple):
    """Places at which a step is to read other values. ``mild`` numbers differ by less: extreme ones end in an error."""

    places: frozenset[ReadSite]
    how: How = "turned"
    mild: bool = False


@dataclass
class Ran:
    """Outcome of a trial: its ops if it reached its end, else how it ended.

    ``error`` is one of the program's own, ``other`` anything that shows that other ops ran. ``compared`` are the places
    of numbers that were compared with something, ``reached`` those of all values that it read and that can be tried.
    """

    ops: Sequence[Op] | None = None
    error: str = ""
    other: str = ""
    compared: set[ReadSite] = field(default_factory=set)
    reached: set[ReadSite] = field(default_factory=set)


Run = Callable[[Trial], Ran]


def most_ops(recorded: int) -> int:
    """Return the number of ops after which a trial of a step of ``recorded`` ops ends: it has others."""
    return 4 * recorded + 1000


def ops_of(graph: Graph) -> list[Op]:
    """The ops of ``graph``, their shapes and what is resident beside them, without the readings of values."""
    changes = [0] * (len(graph) + 2)
    for storage in graph.storages:
        changes[0 if storage.birth is None else storage.birth] += int(storage.nbytes)
        changes[-1 if storage.death is None else storage.death] -= int(storage.nbytes)
    resident = itertools.accumulate(changes)
    ops = ((op, nbytes) for op, nbytes in zip(graph, resident, strict=False) if op.name != _READING)
    return [(op.name, [t.shape for t in op.inputs], [t.shape for t in op.outputs], nbytes) for op, nbytes in ops]


_READING = "aten._local_scalar_dense.default"


_known: ContextVar[dict[object, dict[ReadSite, Finding]] | None] = ContextVar("findings by places", default=None)


_running: ContextVar[bool] = ContextVar("a trial runs", default=False)


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """Keep what a trial computes and compares from whoever observes the step."""
    token = _running.set(True)
    try:
        with conditions(), computed():
            yield
    finally:
        _running.reset(token)


def trial_runs() -> bool:
    """True while a step runs with other values."""
    return _running.get()


@contextlib.contextmanager
def tried_once() -> Iterator[None]:
    """Try the values of a step once while active: others that read at the same places, of the same workload at other
    sizes, have the same findings."""
    token = _known.set({})
    try:
        yield
    finally:
        _known.reset(token)


def findings(
    base: Sequence[Op], readings: Iterable[Reading], run: Run, most: int = MOST_PLACES
) -> dict[ReadSite, Finding]:
    """Find out on which of the values that a step reads its ops depend. Places without a finding have not been tried.

    ``base`` are the ops of the recorded step; ``run`` runs it with other values.
    """
    read = [each for each in readings if each.in_step]
    known, key = _known.get(), frozenset((each.place, each.use) for each in read)
    if known is None:
        return _found(base, read, run, most)
    if key not in known:
        known[key] = _found(base, read, run, most)
    return known[key]


def _found(base: Sequence[Op], read: Sequence[Reading], run: Run, most: int) -> dict[ReadSite, Finding]:
    tried = sorted((each for each in read if each.use in TRIED), key=lambda each: each.place[:2])
    trials = _Trials(base, run, {each.place for each in read})
    found = trials.numbers([each.place for each in tried if each.use is Use.NUMBER], most)
    singly = [
        each
        for each in tried
        if each.use is Use.CONDITION or (each.place in trials.compared and found[each.place].verdict is Verdict.SAME)
    ]
    for count, reading in enumerate(singly):
        found[reading.place] = trials.turned(reading) if count < most else UNCHECKED
    several = [each.place for each in singly if found[each.place].verdict is Verdict.SAME]
    if len(several) > 1:
        together = trials.result(Trial(frozenset(several)), "other values at several places")
        if together.verdict is Verdict.DEPENDS:
            found |= dict.fromkeys(several, together)
    return trials.settled(found)


class _Trials:
    """Runs trials and compares their ops with those of the recorded step, which reads at the places ``read``."""

    def __init__(self, base: Sequence[Op], run: Run, read: set[ReadSite]) -> None:
        self.base, self._run, self._read = base, run, read
        self.compared: set[ReadSite] = set()
        self._spent = 0

    def numbers(self, places: list[ReadSite], most: int) -> dict[ReadSite, Finding]:
        """Try larger and smaller numbers and NaN: all at once, then one by one where that changes the ops."""
        found = dict.fromkeys(places, Finding(Verdict.SAME))
        hows: tuple[How, ...] = ("larger", "smaller", "nan")
        for how in hows:
            left = [place for place in places if found[place].verdict is Verdict.SAME]
            together = self._number(left, how) if left else Finding(Verdict.SAME)
            if together.verdict is Verdict.SAME:
                continue
            for count, place in enumerate(left):
                one = together if len(left) == 1 else self._number([place], how) if count < most else UNCHECKED
                found[place] = one
            if all(found[place].verdict is Verdict.SAME for place in left):  # only together do they change ops
                found |= dict.fromkeys(left, together)
        return found

    def _number(self, places: Sequence[ReadSite], how: How) -> Finding:
        """Try other numbers, and milder ones if the program ends with an error on extreme ones, or not at all."""
        first = self.result(Trial(frozenset(places), how))
        if first.verdict not in (Verdict.STOPS, Verdict.UNCHECKED):
            return first
        second = self.result(Trial(frozenset(places), how, mild=True))
        return UNCHECKED._replace(seen=second.seen) if second.verdict is Verdict.STOPS else second

    def turned(self, reading: Reading) -> Finding:
        """Try a condition the other way round, or each comparison of a number."""
        if reading.use is Use.CONDITION:
            other = " and ".join(str(not value) for value in reading.values[:2])
            return self._with_reached(Trial(frozenset([reading.place])), other)
        found = self._with_reached(Trial(frozenset([reading.place]), "true"))
        return (
            found
            if found.verdict is not Verdict.SAME
            else self._with_reached(Trial(frozenset([reading.place]), "false"))
        )

    def _with_reached(self, trial: Trial, other: str = "") -> Finding:
        """Run ``trial``; if it changes nothing, try also other values at the places that only it has reached."""
        ran = self._ran(trial)
        found = self._finding(ran, trial, other)
        reached = ran.reached - self._read
        if found.verdict is not Verdict.SAME or not reached:
            return found
        return self.result(Trial(trial.places | reached, trial.how), other)

    def result(self, trial: Trial, other: str = "") -> Finding:
        """Run ``trial`` and compare its ops."""
        return self._finding(self._ran(trial), trial, other)

    def _ran(self, trial: Trial) -> Ran:
        if self._spent >= MOST_OPS:
            return Ran()
        ran = self._run(trial)
        self._spent += len(self.base if ran.ops is None else ran.ops)
        self.compared |= ran.compared
        return ran

    def _finding(self, ran: Ran, trial: Trial, other: str) -> Finding:
        said = _SAID[trial.how].format(other)
        if ran.other:
            return Finding(Verdict.DEPENDS, f"{said}, {ran.other}")
        if ran.error:
            return Finding(Verdict.STOPS, f"{said}, {ran.error}")
        if ran.ops is None:
            return UNCHECKED
        if ran.ops == self.base:
            return Finding(Verdict.SAME)
        return Finding(Verdict.DEPENDS, f"{said}, {_difference(self.base, ran.ops)}")

    def settled(self, found: dict[ReadSite, Finding]) -> dict[ReadSite, Finding]:
        """``found``, unless ops change from step to step anyway: then nothing is known of what changed them."""
        depend = [place for place, each in found.items() if each.verdict is Verdict.DEPENDS]
        if not depend or all(self._run(Trial(frozenset())).ops == self.base for _ in range(2)):
            return found
        return found | dict.fromkeys(depend, UNCHECKED._replace(seen="they differ from step to step"))


def _difference(base: Sequence[Op], ops: Sequence[Op]) -> str:
    """Name the difference of ``ops`` from ``base``."""
    more = len(ops) - len(base)
    names, before = Counter(str(op[0]) for op in ops), Counter(str(op[0]) for op in base)
    if names == before and [op[:3] for op in ops] == [op[:3] for op in base]:
        peaks = (max((cast(int, op[3]) for op in each), default=0) for each in (base, ops))
        return "the same ops with {1} of memory at their peak instead of {0}".format(*map(format_bytes, peaks))
    if names == before:
        return "other shapes" if [op[0] for op in ops] == [op[0] for op in base] else "another order of ops"
    changed = (names - before) if more >= 0 else (before - names)
    first = f", {changed.most_common(1)[0][0]} among them" if changed else ""
    if not more:
        return f"other ops{first}"
    return f"{abs(more)} {'op' if abs(more) == 1 else 'ops'} {'more' if more > 0 else 'fewer'}{first}"
