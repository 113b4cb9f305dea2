"""Checks of a step: ``tensortide.check``, and its result."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensortide.errors import CheckError
from tensortide.graph.model import Graph
from tensortide.importers.imported import Imported
from tensortide.metrics.checks.assertions import Assertion, Bound, bounded, parse
from tensortide.metrics.checks.baseline import (
    Baseline,
    Identity,
    baseline_of,
    identity_of,
    load_baseline,
    replaced,
)
from tensortide.metrics.checks.measured import Measured
from tensortide.metrics.checks.verdicts import Verdict, verdict
from tensortide.metrics.registry import Registry, default_registry
from tensortide.shown import Shown
from tensortide.timelines.machines import split
from tensortide.write import write_file

if TYPE_CHECKING:
    from tensortide.recorder.target import Scalar

PathName = str | os.PathLike[str]


@dataclass(frozen=True)
class Accepted:
    """A baseline that is to take the place of another one (None: of none, for the ``reason``, if there is one)."""

    path: Path
    baseline: Baseline
    before: Baseline | None
    reason: str = ""

    @property
    def changes(self) -> tuple[tuple[str, float | None, float | None], ...]:
        """The metrics that differ, with both values."""
        old, new = {} if self.before is None else self.before.metrics, self.baseline.metrics
        names = dict.fromkeys([*new, *old])
        return tuple((name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name))

    @property
    def modules(self) -> tuple[str, ...]:
        """The paths of the modules whose figures differ."""
        old, new = {} if self.before is None else self.before.modules, self.baseline.modules
        return tuple(path for path in dict.fromkeys([*new, *old]) if old.get(path) != new.get(path))


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
    def holds(self) -> bool:
        """True if every assertion holds; what is unknown does not."""
        return all(one.outcome == "holds" for one in self.verdicts)

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
    **limits: str | float,
) -> Checked:
    """Check a step: each of the ``assertions`` holds, fails, or is undecided, which counts as a failure.

    >>> tensortide.check("gpt2", ["peak <= 8GiB", "no recomputation in blocks.*"]).holds  # doctest: +SKIP
    >>> tensortide.check(step, peak="2GiB", flops="+1% of baseline", baseline="step.json")  # doctest: +SKIP

    ``what`` is a Graph, a workload, a step, a model with ``inputs`` (see ``tensortide.capture``, which takes the other
    options), or the text of a target. ``limits`` are assertions by metric, numbers in base units. Without a ``device``
    the step is captured for the one that an assertion names (``peak <= 24GiB on cuda``), or for the machine of
    ``time(h100)``.

    ``accept`` writes the ``baseline``. Raises CheckError for an assertion that cannot be read, and for a baseline that
    is missing or of another step; what ``capture`` raises.
    """
    registry = default_registry()
    texts = [assertions] if isinstance(assertions, str) else [*assertions]
    rules = parsed([*texts, *(bounded(metric, limit, registry) for metric, limit in limits.items())], registry)
    how = capture_for(rules, device, machine)
    given = {"hyperparameters": hyperparameters, "inputs": inputs, "loss": loss, "optimizer": optimizer}
    step = _step(what, {**how, **{key: value for key, value in given.items() if value is not None}})
    measured = Measured(step.graph, registry, step.durations, machine)
    found = checked(rules, measured, baseline=baseline, accept=accept, name=name)
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


def capture_for(rules: Sequence[Assertion], device: str | None, machine: str | None) -> dict[str, str]:
    """Return device and machine to capture a step for: those given, else those that the assertions name.

    Raises CheckError if they name several devices.
    """
    quantities = [rule.quantity for rule in rules if isinstance(rule, Bound)]
    devices = list(dict.fromkeys(one.device for one in quantities if one.device))
    if device is None and machine is None and len(devices) > 1:
        raise CheckError(f"a check is of one capture: check {' and '.join(devices)} apart, or give the device")
    device = device or (devices[0] if devices and machine is None else None)
    timed = [one.machine for one in quantities if one.machine]
    if machine is None and timed and (device is None or device.startswith("cuda")):
        machine = timed[0]
    found = {} if device is None else {"device": device}
    return found if machine is None else {**found, "machine": _kernels(machine)}


def _kernels(machine: str) -> str:
    """The device of the catalogue that the machine consists of."""
    from tensortide.timing.catalogue import meant

    return meant(split(machine)[1])[0].name


def checked(
    rules: Sequence[Assertion],
    measured: Measured,
    *,
    baseline: PathName | None,
    accept: bool,
    name: str = "",
) -> Checked:
    """Try assertions on a step. A baseline to accept is returned, not written.

    Raises CheckError for a baseline that is missing, of another step, or without a metric that is compared.
    """
    relative = [rule for rule in rules if isinstance(rule, Bound) and rule.relative]
    if baseline is None and (relative or accept):
        what = f"{relative[0].text!r} needs" if relative else "--accept writes"
        raise CheckError(f"{what} a baseline: name its file (--baseline FILE, baseline=...)")
    old, accepted, remarks = None, None, list[str]()
    if baseline is not None:
        quantities = [rule.quantity for rule in relative]
        if accept:
            now = baseline_of(measured, quantities)
            before, reason = replaced(baseline)
            if before is not None and (other := before.of.differences(now.of)):
                before, reason = None, f"it was of another step: {'; '.join(other)}"
            accepted, old = Accepted(Path(baseline), now, before, reason), now
        elif relative or Path(baseline).exists():
            old = load_baseline(baseline)
            old.refuse_other(identity_of(measured), baseline)
            remarks += old.remarks(measured.graph.meta.framework)
    verdicts = tuple(verdict(rule, measured, old) for rule in rules)
    meta = measured.graph.meta
    identity = identity_of(measured)
    return Checked(name or identity.workload, identity, meta.framework, verdicts, tuple(remarks), accepted)


def _step(what: Any, options: Mapping[str, Any]) -> Imported:
    """Capture or read a step."""
    if isinstance(what, Graph | Imported):
        return what if isinstance(what, Imported) else Imported(what)
    if isinstance(what, str | os.PathLike) and "inputs" not in options:
        from tensortide.importers.door import File, open, resolve

        if isinstance(resolve(what), File):
            options = {key: value for key, value in options.items() if key not in ("device", "machine")}
        return open(what, **options)
    from tensortide.recorder import capture

    return Imported(capture(what, **options))
