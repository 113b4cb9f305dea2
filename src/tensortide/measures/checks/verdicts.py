"""Verdicts on assertions: what holds, what fails, and what is undecided, which is no pass."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Annotated, Literal, TypeAlias

from tensortide.differences import Pair, diff, flat
from tensortide.errors import CheckError
from tensortide.graph.model import OpView
from tensortide.graph.module_paths import is_inside
from tensortide.measures.checks.assertions import Absence, Assertion, Bound
from tensortide.measures.checks.baseline import Baseline, Identity, Part, identity_of, place_text
from tensortide.measures.checks.measured import Measured, Reading
from tensortide.measures.metric import Number, Unit
from tensortide.shown import Show
from tensortide.timelines.module_figures import BY_MODULE, NONE, ModuleFigures

Outcome: TypeAlias = Literal["holds", "fails", "unknown"]

_HOLDS: dict[str, Callable[[Fraction, Fraction], bool]] = {
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
    "==": operator.eq,
}
_LISTED = 5
"""Forbidden ops that a reason lists."""


@dataclass(frozen=True)
class Growth:
    """Own figures of modules that differ from the baseline, largest difference first; without a baseline the largest,
    and none is ``compared``.

    The ``amount`` is the field of ModuleFigures that the ``metric`` sums. Differences add up to that of the whole.
    """

    metric: str
    title: str
    unit: Unit
    amount: str
    modules: tuple[Pair[ModuleFigures], ...]
    compared: bool


@dataclass(frozen=True)
class Verdict:
    """An assertion and what became of it. ``value`` and ``limit`` are in base units of ``unit``; None: not known.
    ``device`` and ``machine`` are those that its step was captured for."""

    text: Annotated[str, Show("Assertion", fold=True)]
    outcome: Outcome
    unit: Unit = "count"
    value: Annotated[Number | None, Show(unit="number", data=True)] = None
    limit: Annotated[Number | None, Show(unit="number", data=True)] = None
    baseline: Annotated[Number | None, Show(unit="number", data=True)] = None
    relation: str = ""
    reason: str = ""
    remark: str = ""
    growth: Growth | None = None
    device: str = ""
    machine: str = ""

    @property
    def place(self) -> Annotated[str, Show("Captured for", fold=True)]:
        """The device that the step was captured for, as ``cuda of H100-SXM-80GB``."""
        return place_text(self.device, self.machine)

    @property
    def margin(self) -> Annotated[float | None, Show(unit="change", data=True)]:
        """The part of the limit that is left; negative where the limit is exceeded."""
        if self.value is None or not self.limit or not self.relation:
            return None
        room = self.limit - self.value if self.relation[0] == "<" else self.value - self.limit
        return float(room / abs(self.limit))


def verdict(assertion: Assertion, measured: Measured, baseline: Baseline | None) -> Verdict:
    """Try one assertion on its capture. Raises CheckError where the baseline lacks what it needs."""
    of = identity_of(measured)
    if isinstance(assertion, Absence):
        found = _absence(assertion, measured)
    else:
        found = _bound(assertion, measured, baseline, of)
    return replace(found, device=of.device, machine=of.machine)


def _elsewhere(baseline: Baseline, of: Identity) -> str:
    """Say that a baseline of the same step has no figures of what it is captured for."""
    others = " and ".join(dict.fromkeys(one.of.place for one in baseline.parts))
    how = "accept them with --accept (of pytest: --tensortide-accept)"
    return f"the baseline has figures for {others}, none for {of.place}: {how}"


def _bound(assertion: Bound, measured: Measured, baseline: Baseline | None, of: Identity) -> Verdict:
    part = None if baseline is None else baseline.part(of)
    before = None if part is None or not assertion.relative else part.value(assertion.quantity)
    reading = measured.read(assertion.quantity)
    made = partial(Verdict, assertion.text, unit=assertion.quantity.metric.unit, relation=assertion.relation)
    if reading.value is None:
        return made(outcome="unknown", reason=reading.reason, baseline=before)
    if assertion.relative and before is None:
        if part is None:
            assert baseline is not None
            return made(outcome="unknown", value=reading.value, reason=_elsewhere(baseline, of))
        if not reading.unknown:
            raise CheckError(
                f"the baseline has no {assertion.quantity.key}, which {assertion.text!r} needs: accept it with --accept"
            )
        return made(outcome="unknown", value=reading.value, reason=_unpriced(reading))
    limit = _in_precision(assertion.limit.of(before), reading.value)
    outcome, reason = _outcome(assertion.relation, reading, limit)
    growth = None if outcome == "holds" else growth_of(assertion, measured, part)
    whole = int(limit) if limit.denominator == 1 else float(limit)
    remark = "; ".join(filter(None, (reading.remark, _straddles(reading, limit))))
    return made(
        outcome=outcome, value=reading.value, limit=whole, baseline=before, reason=reason, remark=remark, growth=growth
    )


def _in_precision(limit: Fraction, value: Number) -> Fraction:
    """The limit as a value can have it: 99.9 % is no binary fraction."""
    return limit if isinstance(value, int) else Fraction(float(limit))


def _outcome(relation: str, reading: Reading, limit: Fraction) -> tuple[Outcome, str]:
    """Compare. A lower bound shows only that a value is too large, or large enough."""
    assert reading.value is not None
    value = Fraction(reading.value)
    holds = _HOLDS[relation](value, limit)
    if not reading.unknown:
        return ("holds", "") if holds else ("fails", "")
    if relation in (">=", ">") and holds:
        return "holds", ""
    if relation in ("<=", "<") and not holds:
        return "fails", f"at least that: {_unpriced(reading)}"
    if relation == "==" and value > limit:
        return "fails", f"at least that: {_unpriced(reading)}"
    return "unknown", _unpriced(reading)


def _unpriced(reading: Reading) -> str:
    ops = "1 op has" if reading.unknown == 1 else f"{reading.unknown} ops have"
    return f"{ops} no cost rule, so the total is a lower bound (tensortide count --missing lists them)"


def _straddles(reading: Reading, limit: Fraction) -> str:
    if reading.low is None or reading.high is None:
        return ""
    within = Fraction(reading.low) <= limit <= Fraction(reading.high)
    return "the estimate is compared" + "; its 80 % interval has the limit in it" * within


def _absence(rule: Absence, measured: Measured) -> Verdict:
    found, unknown = measured.absent(rule)
    if unknown:
        return Verdict(rule.text, "unknown", reason=unknown)
    if not found:
        return Verdict(rule.text, "holds", value=0, limit=0)
    listed = ", ".join(dict.fromkeys(_place(op) for op in found[:_LISTED]))
    reason = f"{listed}" + f", and {len(found) - _LISTED} more" * (len(found) > _LISTED)
    return Verdict(rule.text, "fails", value=len(found), limit=0, reason=reason)


def _place(op: OpView) -> str:
    source = op.source
    line = "" if source is None else f" ({source.file.rpartition('/')[2]}:{source.line})"
    return f"{op.name} in {op.module}{line}"


_INSTEAD = {"step_time": "flops", "step_time_low": "flops", "step_time_high": "flops"}
"""Metrics that explain a difference of one that is not known by module."""


def growth_of(bound: Bound, measured: Measured, baseline: Part | None) -> Growth | None:
    """Return the modules in which a quantity grew; None if it is not known by module."""
    name = bound.quantity.metric.name
    by = name if name in BY_MODULE else "step_peak" if name.startswith("step_peak_") else _INSTEAD.get(name, "")
    if not by or bound.quantity.device:
        return None
    metric, now, old = measured.registry[by].metric, measured.modules, {} if baseline is None else baseline.modules
    wanted = bound.quantity.modules or "*"
    inside = {path for path in {**now, **old} if is_inside(path, wanted)}
    before, after = (flat({path: side[path] for path in side if path in inside}, NONE) for side in (old, now))
    sizes = {pair: abs(pair.values(BY_MODULE[by]).difference) for pair in diff(before, after).children}
    pairs = sorted((pair for pair, size in sizes.items() if size), key=lambda pair: -sizes[pair])
    return Growth(by, metric.title, metric.unit, BY_MODULE[by], tuple(pairs), baseline is not None) if pairs else None
