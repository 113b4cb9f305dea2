"""Budgets as people write them: ``1.0:0.1``, ``0.9,0.5``, ``80%``, ``8GiB:2GiB:1GiB``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Final, Literal

import msgspec

from tensortide.errors import PlanError, TensortideError
from tensortide.graph.model import Graph, Role
from tensortide.replays.remat.simulation import UNLIMITED
from tensortide.timelines import timeline
from tensortide.units import LONGEST, lost_unit, parse_bytes

_RATIO = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(%?)", re.ASCII)
_STEP = Fraction(1, 10)
_MOST_RATIO = 10
_MOST = 1000
_HOW = "write ratios of the peak (1.0:0.1 or 0.9,0.5 or 80%), sizes (8GiB), ranges with a step (8GiB:2GiB:1GiB)"

_HOW_ONE = "write a size (8GiB), a part of the peak (60% or 0.6), or of the activations at the peak (60%act)"
_OF_ACTIVATIONS = "act"

AUTO: Final = "auto"
"""The budget of what is free on the device."""
MISSING = "a budget is missing: add --budget 8GiB, or --budget 60% of what the step takes"


class Budget(msgspec.Struct, frozen=True):
    """Either a ``ratio`` of the peak without a budget, or only of the activations at it, or a number of bytes; perhaps
    with the text that gave it."""

    ratio: float | None = None
    nbytes: int | None = None
    text: str = ""

    def __str__(self) -> str:
        """The budget as it is typed."""
        return self.text or (f"{self.ratio}" if self.nbytes is None else f"{self.nbytes}B")

    @property
    def of_activations(self) -> bool:
        """True if ``ratio`` is one of the activations; no field of its own, which would change the keys of trials."""
        return self.text.endswith(_OF_ACTIVATIONS)

    def bytes_of(self, baseline_bytes: int, activation_bytes: int = 0) -> int:
        """The budget of a step whose peak without one is ``baseline_bytes``, ``activation_bytes`` of them activations:
        of a ratio, rounded down. Raises PlanError for a part of activations where there are none."""
        if self.nbytes is not None:
            return self.nbytes
        share = self.ratio or 0
        if not self.of_activations:
            return int(baseline_bytes * share)
        if not activation_bytes:
            raise PlanError(f"{self.text}: there are no activations at the peak of this step; write a part of the peak")
        return baseline_bytes - activation_bytes + int(activation_bytes * share)

    def of_step(self, graph: Graph, device: str) -> int:
        """The budget of the step ``graph`` on ``device``, each storage released after its last use."""
        peak = timeline(graph, lifetimes="last_use", device=device).peak_bytes
        return self.bytes_of(peak, activation_bytes(graph, device) if self.of_activations else 0)


def activation_bytes(graph: Graph, device: str) -> int:
    """Bytes of the activations on ``device`` at the peak of the step, each storage released after its last use."""
    line = timeline(graph, lifetimes="last_use", device=device)
    found = line.by_role.get(Role.ACTIVATION)
    return 0 if found is None else int(found[line.resident.argmax()])


def budgets(text: str) -> tuple[Budget, ...]:
    """The budgets that ``text`` lists: single ones and ranges ``FROM:TO`` or ``FROM:TO:STEP``, both ends included.

    Ratios go in steps of 0.1 unless told otherwise. Raises PlanError for anything else.
    """
    found: dict[Budget, None] = {}
    for part in text.split(","):
        for budget in _range(part.strip()):
            found[budget] = None
            if len(found) > _MOST:
                raise PlanError(f"{text!r} are more than {_MOST:,} budgets: take larger steps")
    return tuple(found)


def one_budget(value: str | int, many: str) -> Budget:
    """The budget that a text gives; a whole number above 1 is in bytes, unless so few that its unit was lost. ``many``
    names the verb that takes several. Raises PlanError for several, and for anything else."""
    if isinstance(value, int):
        return Budget(nbytes=value)
    if value.rstrip().endswith(_OF_ACTIVATIONS):
        return _part_of_activations(value)
    if "," not in value and ":" not in value:
        return msgspec.structs.replace(_budget(*_single(value.strip())), text=value)
    found = budgets(value)
    if len(found) != 1:
        raise PlanError(f"{value!r} are {len(found)} budgets: one run has one; {many} takes many")
    return msgspec.structs.replace(found[0], text=value)


def _part_of_activations(text: str) -> Budget:
    amount, in_bytes = _amount(text.strip().removesuffix(_OF_ACTIVATIONS).strip(), text, _HOW_ONE)
    if in_bytes or amount > 1:
        raise PlanError(f"{text!r} is no part of the activations: write 60%act, and 100%act at most")
    return Budget(ratio=float(amount), text=text.strip())


def _single(text: str) -> tuple[Fraction, bool]:
    if re.fullmatch(rf"[0-9]{{1,{LONGEST}}}", text) and int(text) > 1:
        amount, in_bytes = Fraction(text), True
    else:
        amount, in_bytes = _amount(text, text, _HOW_ONE)
    if in_bytes and (problem := lost_unit(text, int(amount), share=True)):
        raise PlanError(f"a budget of {problem}")
    return amount, in_bytes


def budget_or_auto(value: str | int, many: str) -> Budget | Literal["auto"]:
    """As ``one_budget``, or AUTO."""
    return AUTO if value == AUTO else one_budget(value, many)


def resolved(wanted: Iterable[Budget], baseline_bytes: int) -> list[tuple[int, float]]:
    """Bytes and ratio of each of ``wanted`` for a step with that peak: the largest first, each once."""
    ratios: dict[int, float] = {}
    for budget in wanted:
        nbytes = budget.bytes_of(baseline_bytes)
        ratio = nbytes / baseline_bytes if budget.ratio is None and baseline_bytes else budget.ratio or 0.0
        ratios.setdefault(nbytes, ratio)
    return sorted(ratios.items(), reverse=True)


def _range(part: str) -> Iterator[Budget]:
    ends = part.split(":")
    if len(ends) > 3:
        raise PlanError(f"{part!r} is no range of budgets: {_HOW}")
    amounts = [_amount(end.strip(), part) for end in ends]
    in_bytes = amounts[0][1]
    if any(kind != in_bytes for _, kind in amounts):
        raise PlanError(f"{part!r} mixes ratios and sizes: {_HOW}")
    if len(amounts) == 1:
        yield _budget(*amounts[0])
        return
    if in_bytes and len(amounts) == 2:
        raise PlanError(f"{part!r} needs a step: {_HOW}")
    first, last = amounts[0][0], amounts[1][0]
    step = amounts[2][0] if len(amounts) == 3 else _STEP
    count = abs(first - last) // step + 1
    if count > _MOST:
        raise PlanError(f"{part!r} are {count:,} budgets, more than {_MOST:,}: take larger steps")
    way = step if last > first else -step
    for i in range(int(count)):
        yield _budget(first + i * way, in_bytes)


def _budget(amount: Fraction, in_bytes: bool) -> Budget:
    return Budget(nbytes=int(amount)) if in_bytes else Budget(ratio=float(amount))


def _amount(text: str, part: str, how: str = _HOW) -> tuple[Fraction, bool]:
    """A number above 0, and whether it counts bytes."""
    match = _RATIO.fullmatch(text)
    if match is None:
        try:
            amount, in_bytes = Fraction(parse_bytes(text)), True
        except TensortideError:
            where = "" if text == part else f" in {part!r}"
            raise PlanError(f"{text!r}{where} is no budget: {how}") from None
    else:
        amount, in_bytes = Fraction(match[1]) / (100 if match[2] else 1), False
    if not amount:
        raise PlanError(f"a budget, or a step between budgets, is more than {text!r}")
    if in_bytes and amount >= UNLIMITED:
        raise PlanError(f"a budget of {text} is none at all")
    if not in_bytes and amount > _MOST_RATIO:
        raise PlanError(f"{text} times the peak is no useful budget: write {text}B for bytes")
    return amount, in_bytes
