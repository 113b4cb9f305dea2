"""Checks of a step: ``tensortide.check``, and its result."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tensortide.differences import Node, Pair, diff, flat
from tensortide.errors import CheckError, ExitStatus
from tensortide.graph.model import Graph
from tensortide.importers.door import File, as_text, open, resolve
from tensortide.importers.imported import Imported
from tensortide.measures.checks.assertions import Assertion, Bound, Quantity, bounded, parse
from tensortide.measures.checks.baseline import (
    Amount,
    Baseline,
    Identity,
    Part,
    baseline_of,
    identity_of,
    load_baseline,
    replaced,
)
from tensortide.measures.checks.captures import Place, measured_in, places
from tensortide.measures.checks.measured import Measured
from tensortide.measures.checks.verdicts import Outcome, Verdict, verdict
from tensortide.measures.registry import Registry, default_registry
from tensortide.request import options as known_options
from tensortide.shown import Shown
from tensortide.targets.keywords import keyword_of, request_of
from tensortide.targets.opening import opened
from tensortide.targets.requests import CaptureRequest
from tensortide.timelines.module_figures import NONE
from tensortide.write import write_file

if TYPE_CHECKING:
    from tensortide.recorder.target import Scalar

A = TypeVar("A")
PathName = str | os.PathLike[str]
_STATUSES = {"holds": ExitStatus.HOLDS, "fails": ExitStatus.FAILS, "unknown": ExitStatus.UNDECIDED}


@dataclass(frozen=True)
class Accepted:
    """A baseline that is to take the place of another one (None: of none, for the ``reason``, if there is one)."""

    path: Path
    baseline: Baseline
    before: Baseline | None
    reason: str = ""

    @property
    def changes(self) -> tuple[Pair[Amount], ...]:
        """The metrics that differ; those of further captures with their device after the name."""

        def metrics(part: Part) -> dict[str, Amount]:
            suffix = f" ({part.of.place})" * (part.of.place != self.baseline.of.place)
            return {name + suffix: Amount(value) for name, value in part.metrics.items()}

        return tuple(self._changed(metrics, Amount()))

    @property
    def modules(self) -> tuple[str, ...]:
        """The paths of the modules whose figures differ."""
        return tuple(dict.fromkeys(one.name for one in self._changed(lambda part: part.modules, NONE)))

    def _changed(self, amounts: Callable[[Part], Mapping[str, A]], own: A) -> Iterator[Pair[A]]:
        """Yield what differs in each capture, by its place."""
        before, now = (
            Node("", own, tuple(Node(part.of.place, own, flat(amounts(part), own).children) for part in parts))
            for parts in (() if self.before is None else self.before.parts, self.baseline.parts)
        )
        return (one for capture in diff(before, now).children for one in capture.children if one.kind != "same")


@dataclass(frozen=True, repr=False)
class Checked(Shown):
    """A step and the verdicts on it, in the order of the assertions."""

    SECTION = "checks"

    name: str
    of: Identity
    framework: str
    verdicts: tuple[Verdict, ...]
    remarks: tuple[str, ...] = ()
    accepted: Accepted | None = None

    @property
    def outcome(self) -> Outcome:
        """``fails`` if an assertion does, else ``unknown`` if one is undecided."""
        found = {one.outcome for one in self.verdicts}
        return "fails" if "fails" in found else "unknown" if "unknown" in found else "holds"

    @property
    def status(self) -> ExitStatus:
        """The outcome as that of a program."""
        return _STATUSES[self.outcome]

    @property
    def holds(self) -> bool:
        """True if every assertion holds; what is unknown does not."""
        return self.outcome == "holds"

    @property
    def failures(self) -> tuple[Verdict, ...]:
        """The verdicts that are no pass."""
        return tuple(one for one in self.verdicts if one.outcome != "holds")


def check(
    what: Any,
    assertions: Sequence[str] | str = (),
    *,
    baseline: PathName | None = None,
    accept: bool = False,
    name: str = "",
    device: str | None = None,
    machine: str | None = None,
    hyperparameters: Mapping[str, Scalar] | None = None,
    inputs: Any = None,
    loss: Any = None,
    optimizer: str | None = None,
    **limits: Any,
) -> Checked:
    """Check a step: each of the ``assertions`` holds, fails, or is undecided, which is no pass.

    >>> tensortide.check("gpt2", ["peak <= 8GiB", "no recomputation in blocks.*"]).holds  # doctest: +SKIP
    >>> tensortide.check(step, peak="2GiB", flops="+1% of baseline", baseline="step.json")  # doctest: +SKIP

    ``what`` is any target, or a model with ``inputs`` (see ``tensortide.capture``, which takes the options that are
    named here). ``limits`` are assertions by metric, numbers in base units; and the other options of a target's capture
    as the command line has them (``set``, ``ranks``, ...). The step is captured
    for the ``device`` and the ``machine``, and once more for each other one that assertions name: for the machine of
    ``time(h100)``, and without both for the device of ``peak <= 24GiB on cuda``.

    ``accept`` writes the ``baseline``. Raises CheckError for an assertion that cannot be read, and for a baseline that
    is missing or of another step; what ``capture`` raises.
    """
    registry = default_registry()
    texts: Any = [assertions] if isinstance(assertions, str) else assertions
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise CheckError(f"assertions are texts, as 'peak <= 24GiB', not {assertions!r}")
    asked = {key: limits.pop(key) for key in map(keyword_of, known_options(CaptureRequest)) if key in limits}
    rules = parsed([*texts, *(bounded(metric, limit, registry) for metric, limit in limits.items())], registry)
    given = {"hyperparameters": hyperparameters, "inputs": inputs, "loss": loss, "optimizer": optimizer}
    options = {key: value for key, value in given.items() if value is not None}
    if asked and options:
        raise CheckError(f"{' and '.join(asked)} goes with a target, {' and '.join(options)} with what capture takes")

    def capture(place: Place) -> Measured:
        if asked:
            step = opened(resolve(as_text(what)), request_of("check", CaptureRequest, {**asked, **place.options}))
        else:
            step = _step(what, {**place.options, **options})
        return Measured(step.graph, registry, step.durations, machine)

    wanted = [Place()] * len(rules) if _is_captured(what, options) else places(rules, device, machine)
    found = checked(rules, measured_in(wanted, capture), baseline=baseline, accept=accept, name=name)
    if found.accepted is not None:
        write_file(found.accepted.path, found.accepted.baseline.text(), folders=True)
    return found


def parsed(texts: Sequence[str], registry: Registry) -> tuple[Assertion, ...]:
    """Read all assertions. Raises CheckError; if there is none, too."""
    if not texts:
        raise CheckError("nothing to check: give an assertion, as peak <= 24GiB")
    return tuple(parse(text, registry) for text in texts)


def compares(rules: Iterable[Assertion]) -> bool:
    """Tell whether an assertion compares with a baseline."""
    return any(isinstance(rule, Bound) and rule.relative for rule in rules)


def checked(
    rules: Sequence[Assertion],
    measured: Sequence[Measured],
    *,
    baseline: PathName | None,
    accept: bool,
    name: str = "",
) -> Checked:
    """Try assertions, each on the capture of the step in the same place of ``measured``. A baseline to accept is
    returned, not written.

    Raises CheckError for a baseline that is missing, of another step, or without a metric that is compared.
    """
    compared = [(rule, step) for rule, step in zip(rules, measured, strict=True) if compares([rule])]
    if baseline is None and (compared or accept):
        what = f"{compared[0][0].text!r} needs" if compared else "--accept writes"
        raise CheckError(f"{what} a baseline: name its file (--baseline FILE, baseline=...)")
    old, accepted, remarks = None, None, list[str]()
    meta, identity = measured[0].graph.meta, identity_of(measured[0])
    if baseline is not None:
        if accept:
            old = baseline_of([(step, _compared(compared, step)) for step in _distinct(measured)])
            accepted = _accepted(Path(baseline), old)
        elif compared or Path(baseline).exists():
            old = load_baseline(baseline)
            for step in _distinct([step for _, step in compared] or measured[:1]):
                old.refuse_other(identity_of(step), baseline)
            remarks += old.remarks(meta.framework)
    verdicts = tuple(verdict(rule, step, old) for rule, step in zip(rules, measured, strict=True))
    return Checked(name or identity.workload, identity, meta.framework, verdicts, tuple(remarks), accepted)


def _distinct(measured: Iterable[Measured]) -> list[Measured]:
    return list({id(one): one for one in measured}.values())


def _compared(rules: Iterable[tuple[Assertion, Measured]], step: Measured) -> list[Quantity]:
    """The quantities of one capture that are compared with a baseline."""
    return [rule.quantity for rule, of in rules if of is step and isinstance(rule, Bound)]


def _accepted(path: Path, now: Baseline) -> Accepted:
    before, reason = replaced(path)
    if before is None or not (found := before.differences(now.of)):
        return Accepted(path, now, before, reason)
    return Accepted(path, now, None, f"it was of another step: {'; '.join(found)}")


def _is_captured(what: Any, options: Mapping[str, Any]) -> bool:
    """Tell whether ``what`` is a step that was captured before, for the device that it is on."""
    if isinstance(what, str | os.PathLike) and "inputs" not in options:
        return isinstance(resolve(what), File)
    return isinstance(what, Graph | Imported)


def _step(what: Any, options: Mapping[str, Any]) -> Imported:
    """Capture or read a step."""
    if isinstance(what, Graph | Imported):
        return what if isinstance(what, Imported) else Imported(what)
    if isinstance(what, str | os.PathLike) and "inputs" not in options:
        return open(what, **options)
    from tensortide.recorder import capture

    return Imported(capture(what, **options))
