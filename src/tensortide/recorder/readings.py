"""Values that a step reads from fake tensors: their lines, their stand-ins, and whether the ops of the step depend on
them. Nothing here needs PyTorch."""

from __future__ import annotations

import contextlib
import enum
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

Number = bool | int | float


class ReadSite(NamedTuple):
    """A line of the user's, and the expression in it that reads a value."""

    file: str
    line: int
    text: str
    direct: bool
    """True if the expression is the reading itself, and not a call of the framework's code that reads."""

    def __str__(self) -> str:
        return f"{shortened(self.file)}:{self.line}"


class Use(enum.StrEnum):
    """Use of a value where it is read."""

    NUMBER = "number"
    CONDITION = "condition"
    CHECK = "check"
    """A condition that raises an error unless it has the value that it is given."""
    LOOP = "loop"
    """A condition that would end a loop."""
    GIVEN = "given"
    """The value is the user's own."""


TRIED = (Use.NUMBER, Use.CONDITION)
"""Uses of values that are tried with others."""


@dataclass
class Reading:
    """Readings at one place: the stand-ins, whether the recorded step reads there, whether it reads integers, and
    whether they are printed, and nothing else."""

    place: ReadSite
    use: Use
    values: list[Number] = field(default_factory=list)
    in_step: bool = False
    whole: bool = False
    printed: bool = False


class Verdict(enum.StrEnum):
    """Answers to the question whether the ops of a step depend on a value."""

    SAME = "no other value that was tried changes the ops of the step"
    DEPENDS = "the ops of the step depend on it"
    STOPS = "the step stops with another value"
    UNCHECKED = "whether the ops of the step depend on it was not checked"


class Finding(NamedTuple):
    """A verdict, and what was seen with another value."""

    verdict: Verdict
    seen: str = ""


UNCHECKED = Finding(Verdict.UNCHECKED)


class Sentences(NamedTuple):
    """Sentences on the values of a step: ``every``, those on which its ops depend, and those on which they may."""

    every: list[str]
    decisive: list[str]
    untested: list[str]


def sentences(readings: Iterable[Reading], findings: Mapping[ReadSite, Finding]) -> Sentences:
    """Tell what was assumed, one sentence for each line and verdict."""
    lines: dict[tuple[str, str], list[str]] = {}
    said = Sentences([], [], [])
    lists: dict[tuple[str, str], list[list[str]]] = {}
    for reading in sorted(readings, key=lambda each: (each.use is Use.LOOP, each.place[:2])):
        place = reading.place
        what = place.text if place.direct else f"a value that {place.text} reads"
        end, where = _end(reading, findings.get(place, UNCHECKED), said)
        lines.setdefault((str(place), end), []).append(f"{what} taken as {listed(reading.values)}")
        lists[str(place), end] = [said.every, *where]
    for (at, end), reads in lines.items():
        for texts in lists[at, end]:
            texts.append(f"{', '.join(reads)} at {at}{end}")
    return said


def _end(reading: Reading, finding: Finding, said: Sentences) -> tuple[str, list[list[str]]]:
    """The end of the sentence on ``reading``, and the lists of ``said`` that it belongs to besides the first."""
    if reading.use is Use.LOOP:
        return ": the loop goes on until something else ends it", [said.decisive]
    if reading.use is Use.CHECK:
        return "; a check, which passes", []
    if reading.use is Use.GIVEN:
        return "", []
    if finding is UNCHECKED and reading.printed:
        return "; it is only printed", []
    where = {Verdict.DEPENDS: [said.decisive], Verdict.UNCHECKED: [said.untested]}.get(finding.verdict, [])
    return f"; {finding.verdict}" + (f": {finding.seen}" if finding.seen else ""), where


def listed(values: Sequence[Number]) -> str:
    """``values`` as a text names them: the first few."""
    texts = [f"{value:.4g}" if type(value) is float and value != int(value) else repr(value) for value in values]
    return ", then ".join(texts[:3]) + (", ..." if len(texts) > 3 else "")


def shortened(file: str) -> str:
    """``file`` as one would name it: from here, from its package, else its name."""
    if "site-packages/" in file:
        return file.rpartition("site-packages/")[2]
    with contextlib.suppress(ValueError):  # on another drive
        here = os.path.relpath(file)
        if not here.startswith(".."):
            return here
    return Path(file).name
