"""The machine at hand where a verb takes a machine: ``local``, its CPU, and ``local:cuda``, its GPU."""

from __future__ import annotations

import contextlib
import functools
import sys

from tensortide.errors import CaptureError, TensortideError
from tensortide.timing.catalogue import Device, device, meant
from tensortide.timing.durations import Platform
from tensortide.timing.local import NAME, Assumed, Local, local
from tensortide.timing.store import installed_software, software_of


def is_local(name: str) -> bool:
    """Tell whether ``name`` is that of the machine at hand."""
    return name.partition(":")[0].lower() == NAME


@functools.cache
def full_name(machine: str) -> str:
    """The name in the catalogue of the machine that a person means; says so if the text is short for several."""
    if is_local(machine):
        return machine.lower()
    found, others = meant(machine)
    if others:
        sys.stderr.write(f"note: {machine} is taken for {found.name}; write {' or '.join(others)} if you mean that\n")
    return found.name


def device_named(name: str) -> Device:
    """The device of that full name. Raises TensortideError if there is none, CaptureError for a GPU not here."""
    return _here(name.partition(":")[2])[0] if is_local(name) else device(name)


def kernels_of(name: str) -> str | None:
    """The device of the catalogue whose kernels a step for the machine ``name`` uses; None if that is not known."""
    if not is_local(name):
        return name
    machine = _here(name.partition(":")[2])[1]
    if machine.device != "cpu":
        with contextlib.suppress(TensortideError):  # the catalogue does not know every device
            return device(machine.name).name
    return None


def software_on(row: Device) -> str | None:
    """The software whose measured times are those of ``row`` here."""
    if isinstance(row, Local) and row.same:
        return software_of(row.calibration.machine)
    return installed_software(row.threads if isinstance(row, Assumed) else None)


@functools.cache
def _here(kind: str) -> tuple[Device, Platform]:
    """The device of this ``kind`` here, and what it is; says once what is doubtful about its times."""
    from tensortide.profile.host import device_context, machine_of

    wanted = kind or "cpu"
    if wanted not in ("cpu", "cuda"):
        raise CaptureError(f"there is no {NAME}:{wanted}: write {NAME}, this CPU, or {NAME}:cuda, its GPU")
    with device_context(wanted):
        machine = machine_of(() if wanted == "cpu" else (wanted,))
    found, warnings = local(machine)
    for warning in warnings:
        sys.stderr.write(f"warning: {warning}\n")
    return found, machine
