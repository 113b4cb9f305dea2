"""Stand-ins for values that a step reads from fake tensors, which have none.

A fake tensor has no values. A number that the step reads is taken as 1, a truth value follows by arithmetic from the
numbers that led to it: ``isfinite(loss)`` is true, ``loss > 100`` is false. Ops whose results lie in a known range
(random numbers, indices) have another stand-in. A condition that ends a loop is not met while the loop has another end,
and one that raises an error is not met. Each is recorded as an assumption, with the line that reads it.

To find out whether ops depend on stand-ins, the step runs again with others (``recorder.trials``).
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

from tensortide.errors import CaptureError, DataDependent
from tensortide.recorder.reading import Part, part_of, reader
from tensortide.recorder.readings import TRIED, Number, Reading, ReadSite, Use
from tensortide.recorder.remedies import FAKE, Remedy
from tensortide.recorder.rounds import STUCK_ROUNDS, Rounds
from tensortide.recorder.surroundings import replaced
from tensortide.recorder.torch_compat import FakeTensor, disable_current_modes
from tensortide.recorder.trials import How, Trial
from tensortide.recorder.turned import turnable

READ_LIMIT = 10_000
"""Readings of stand-ins at one line in one step. A loop over an iterator without end would otherwise not end."""
_FEW = 20
"""Readings at one line of which nobody asks whether they end."""
_DECAY = 0.99
_LARGE, _MILD = 1e12, 100.0
"""Numbers to try in place of a stand-in; the second where functions such as ``exp`` fail on the first."""
_LARGE_INTEGER = 1000


class Picked(int):
    """A stand-in for one of many numbers, such as a token that a model chooses: it equals no given number."""


class Trying:
    """A trial that runs: what it changes, and what it has seen."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.compared: set[ReadSite] = set()
        """Places of numbers that were compared with something."""
        self.reached: set[ReadSite] = set()
        """Places of numbers and conditions."""
        self.last: ReadSite | None = None
        """Place of the number that was read last."""
        self._count = 0

    def value(self, place: ReadSite, use: Use, value: Number, dtype: torch.dtype) -> Number:
        """The value to read at ``place`` instead of ``value``."""
        if use not in TRIED:
            return value
        self.reached.add(place)
        self.last = place if use is Use.NUMBER else None
        if place not in self.trial.places:
            return value
        if use is Use.CONDITION:
            return typed(dtype, not value)
        self._count += 1
        return _other(self.trial.how, self.trial.mild, value, self._count)

    def turnable(self, value: Number) -> Any:
        """``value``, which has just been read, as a number whose comparisons are turned if the trial says so."""
        place, self.last = self.last, None
        if place is None or type(value) is bool:
            return value

        def asked(found: bool) -> bool:
            if not reader(sys._getframe(2))[1]:  # a library that checks its arguments
                return found
            self.compared.add(place)
            how = self.trial.how if place in self.trial.places else ""
            return (how == "true") or (found and how != "false") if how != "turned" else not found

        return turnable(value, asked)


def _other(how: How, mild: bool, value: Number, count: int) -> Number:
    """A larger or smaller number, or NaN; the larger ones rise from reading to reading, ``count``, as stand-ins fall.

    An integer may be a size: it becomes no larger than what is harmless.
    """
    if how == "nan" and type(value) is float:
        return math.nan
    if how not in ("larger", "smaller"):
        return value
    larger = how == "larger"
    if isinstance(value, Picked):
        return Picked(value + 1)
    if type(value) is float:
        found = (_MILD if larger else 1 / _LARGE) if mild else (_LARGE if larger else -_LARGE)
        return found * (1 + count / 100) if larger else found
    if mild:
        return int(value) + (1 if larger else -1)
    return _LARGE_INTEGER if larger else 0


class Values:
    """The stand-ins of one capture. ``given`` are values from the user, by line: ``{"train.py:41": 128}``."""

    def __init__(self, given: Mapping[str, Number] | None = None, remedy: Remedy = FAKE) -> None:
        self.given, self.remedy = dict(given or {}), remedy
        self.used: set[str] = set()
        """Places of ``given`` that have been used."""
        self.readings: dict[ReadSite, Reading] = {}
        self.trying: Trying | None = None
        self.picked = False
        """True if a number that the step picked was compared with a given one."""
        self._in_step = False
        self._counts: Counter[tuple[CodeType, int]] = Counter()
        self._rounds: dict[tuple[CodeType, int], Rounds] = defaultdict(Rounds)

    def starts(self) -> None:
        """Begin a step, perhaps the recorded one: reset the count of readings."""
        self._in_step = True
        self._counts.clear()
        self._rounds.clear()
        for reading in self.readings.values() if self.trying is None else ():
            reading.in_step = False

    @contextlib.contextmanager
    def tried(self, trial: Trial) -> Iterator[Trying]:
        """Read other values while active."""
        self.trying = Trying(trial)
        try:
            with replaced(FakeTensor, "item", _item):
                yield self.trying
        finally:
            self.trying = None

    def read(self, tensor: torch.Tensor) -> Number:
        """The stand-in for an element of ``tensor``. Raises DataDependent if one line reads too often."""
        frame, direct = reader(sys._getframe(1))
        value = self.standing_for(tensor)
        if frame is None:
            return value
        place, part = self._place(frame, direct)
        if type(value) is float:  # as a loss goes down: a line that reads twice finds no convergence
            value *= _DECAY ** (self._counts[frame.f_code, frame.f_lineno] - 1)
        is_condition = tensor.dtype == torch.bool or (direct and part.tested)
        use = Use.CONDITION if is_condition else Use.NUMBER
        chosen = self.chosen(place)
        if chosen is not None:
            value, use = typed(tensor.dtype, chosen), Use.GIVEN
        elif direct and part.wanted is not None and is_condition:
            value, use = part.wanted, Use.LOOP if part.of_loop else Use.CHECK
        return self._noted(place, use, value, tensor.dtype, printed=part.printed)

    def _noted(self, place: ReadSite, use: Use, value: Number, dtype: torch.dtype, *, printed: bool = False) -> Number:
        """Note that ``value`` is read at ``place``. Returns it, or another one if a trial says so."""
        if self.trying is not None:
            return self.trying.value(place, use, value, dtype)
        reading = self.readings.setdefault(place, Reading(place, use, printed=printed))
        reading.printed &= printed
        if value not in reading.values and len(reading.values) < 4:
            reading.values.append(value)
        reading.in_step |= self._in_step
        reading.whole |= self._in_step and use is not Use.GIVEN and type(value) is int
        return value

    def equal(self, one: torch.Tensor, other: torch.Tensor) -> bool:
        """The stand-in for whether two tensors are equal."""
        if one.shape != other.shape:
            return False
        known, others = getattr(one, "constant", None), getattr(other, "constant", None)
        if known is not None and others is not None:
            with disable_current_modes():
                return bool(torch.equal(known, others))
        frame, direct = reader(sys._getframe(1))
        same = self.known_or_guessed(one) == self.known_or_guessed(other)
        if frame is None:
            return same
        place, part = self._place(frame, direct)
        use = Use.CONDITION
        if direct and part.wanted is not None:
            same, use = part.wanted, Use.LOOP if part.of_loop else Use.CHECK
        return bool(self._noted(place, use, same, torch.bool))

    def known_or_guessed(self, tensor: torch.Tensor) -> Number:
        """The first known value of ``tensor``, else the stand-in for its elements."""
        constant = getattr(tensor, "constant", None)
        if constant is not None and constant.numel():
            with disable_current_modes():
                known: Number = constant.flatten()[0].item()
                return known
        return self.standing_for(tensor)

    def standing_for(self, tensor: torch.Tensor) -> Number:
        """The stand-in for the elements of ``tensor``, at any place."""
        guess = getattr(tensor, "guess", None)
        return typed(tensor.dtype, 1 if guess is None else guess)

    def chosen(self, place: ReadSite) -> Number | None:
        """The value given by the user for ``place``, if any."""
        for key, value in self.given.items():
            file, _, line = key.rpartition(":")
            if line == str(place.line) and _names(file, place.file):
                self.used.add(key)
                return value
        return None

    def size(self) -> int | None:
        """The number of elements given by the user for an op whose result has a size that depends on values, if any."""
        frame, direct = reader(sys._getframe(1))
        if frame is None:
            return None
        place, _ = self._place(frame, direct)
        chosen = self.chosen(place)
        if chosen is not None:
            self.readings.setdefault(place, Reading(place, Use.GIVEN, [int(chosen)]))
        return None if chosen is None else int(chosen)

    def _place(self, frame: FrameType, direct: bool) -> tuple[ReadSite, Part]:
        """The place that reads, and its part. Raises DataDependent for a loop that does not end."""
        key, part = (frame.f_code, frame.f_lineno), part_of(frame)
        self._counts[key] = count = self._counts[key] + 1
        place = ReadSite(frame.f_code.co_filename, frame.f_lineno, part.text, direct)
        loop = self._rounds[key].stuck(frame) if direct and count > _FEW else ""
        if loop:
            raise self._endless(place, f"{loop} has come no nearer to its end in {STUCK_ROUNDS} rounds")
        if count > READ_LIMIT:
            raise self._endless(place, f"values are read over {READ_LIMIT:,} times at one line")
        return place, part

    def _endless(self, place: ReadSite, why: str) -> DataDependent:
        """The error of a loop that does not end."""
        given = ", ".join(f"{key}={value}" for key, value in self.given.items())
        other = f": what --assume {given} says is the same in each round" if given else ""
        other = other or f", or give the value with --assume '{place}=VALUE' (assume={{'{place}': VALUE}})"
        error = DataDependent(
            f"a loop of the step waits for a value that fake tensors do not have: {why}\n"
            f"  at {place.file}:{place.line}: {place.text}\n"
            f"{self.remedy.sentence[:-1]}{other}."
        )
        error.reason = f"a loop waits for {place.text} at {place}"
        return error

    def check(self) -> None:
        """Raise CaptureError if a value was given for a line that reads none."""
        for key in self.given.keys() - self.used:
            read = ", ".join(sorted({str(place) for place in self.readings})) or "no line does"
            raise CaptureError(f"{key} reads no value and chooses no elements. These lines do: {read}")

    def remarks(self) -> list[str]:
        """Sentences on values besides those of single readings."""
        conditions = any(type(value) is bool for reading in self.readings.values() for value in reading.values)
        if not (self.picked and conditions):
            return []
        return ["numbers that the step picks (argmax, samples) equal no given one: no token ends a sequence"]


def _item(self: Any) -> Any:
    trying = self.fake_mode.values.trying
    trying.last = None
    return trying.turnable(torch.Tensor.item(self))


def _names(file: str, path: str) -> bool:
    """True if ``file``, as a user writes it, is the end of ``path`` or leads to it from the working directory."""
    end = Path(file).parts
    return Path(path).parts[-len(end) :] == end or Path(file).resolve() == Path(path).resolve()


def typed(dtype: torch.dtype, value: Number) -> Number:
    """``value`` as an element of ``dtype``."""
    if dtype == torch.bool:
        return bool(value)
    return float(value) if dtype.is_floating_point else int(value)
