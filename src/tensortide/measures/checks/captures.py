"""Captures of a checked step: one for each device or machine that assertions name, so that no assertion changes what
another one is about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tensortide.measures.checks.assertions import Assertion, Bound
from tensortide.measures.checks.measured import Measured
from tensortide.timing.catalogue import DEFAULT_DEVICE


@dataclass(frozen=True)
class Place:
    """A ``device``, and the ``machine`` of the catalogue whose kernels it has. Without both a capture is for the
    device of the step itself."""

    device: str | None = None
    machine: str | None = None

    @property
    def options(self) -> dict[str, str]:
        """The same as options of a capture."""
        given = {"device": self.device, "machine": self.machine}
        return {name: value for name, value in given.items() if value is not None}


def places(rules: Sequence[Assertion], device: str | None, machine: str | None) -> tuple[Place, ...]:
    """Return the place that each of the ``rules`` is about: the one that it names, else the ``device`` and the
    ``machine`` of the whole check.

    ``device`` holds for all: ``on cpu`` then means the host's part of the capture. ``machine`` does so for ``on
    DEVICE``; ``time(h100)`` is about an H100 whatever the machine of the check.
    """
    found = [_place(rule, device, machine) for rule in rules]
    # Without a device a step is on the CPU. One that the check names elsewhere needs no second capture.
    own = Place("cpu") if Place("cpu") in found else Place()
    return tuple(own if one == Place() else one for one in found)


def _place(rule: Assertion, device: str | None, machine: str | None) -> Place:
    quantity = rule.quantity if isinstance(rule, Bound) else None
    if quantity is not None and quantity.machine and (device is None or device.startswith("cuda")):
        return _in_full(device, quantity.machine)
    if quantity is not None and quantity.device and device is None and machine is None:
        return _in_full(quantity.device, None)
    return _in_full(device, machine)


def _in_full(device: str | None, machine: str | None) -> Place:
    """Write one place one way: a GPU always with its machine, a CPU without."""
    from tensortide.targets.machines import device_named, kernels_of, one_of

    row = None if machine is None else device_named(kernels_of(one_of(machine)) or one_of(machine))
    kind = device or (None if row is None else "cuda" if row.kind == "gpu" else "cpu")
    if kind not in ("cuda", "cuda:0"):
        return Place(kind)
    return Place("cuda", DEFAULT_DEVICE if row is None else row.name)


def measured_in(wanted: Sequence[Place], capture: Callable[[Place], Measured]) -> tuple[Measured, ...]:
    """Capture a step once for each place, and return the capture of each of the ``wanted`` ones."""
    made = {place: capture(place) for place in dict.fromkeys(wanted)}
    return tuple(made[place] for place in wanted)
