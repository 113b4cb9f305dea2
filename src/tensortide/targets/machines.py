"""Machines where a verb takes one: those of the catalogue; ``24GB``, a card of that size; ``local``, the CPU at hand;
``local:cuda``, its GPU; and a JSON file, a device of the user's own."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Sequence
from pathlib import Path

from tensortide.errors import RequestError, TensortideError
from tensortide.timelines.machines import Machines, split
from tensortide.timing.cards import card
from tensortide.timing.catalogue import DEFAULT_DEVICE, Device, catalogue, device, meant, named
from tensortide.timing.collectives.cluster import OF_CATALOGUE, Cluster, LinkRates
from tensortide.timing.durations import Platform
from tensortide.timing.local import NAME, Assumed, Local, local
from tensortide.timing.own import own_device
from tensortide.timing.store import installed_software, software_of

LOG = logging.getLogger("tensortide")


def is_local(name: str) -> bool:
    """Tell whether ``name`` is that of the machine at hand."""
    return name.partition(":")[0].lower() == NAME


def is_file(name: str) -> bool:
    """Tell whether ``name`` is that of a file with a device."""
    return name.lower().endswith(".json")


def in_catalogue(name: str) -> bool:
    """Tell whether ``name`` is meant to be one of the catalogue."""
    return not is_local(name) and not is_file(name) and card(name) is None


@functools.cache
def full_name(machine: str) -> str:
    """The name in the catalogue of the machine that a person means; says so if the text is short for several."""
    if size := card(machine):
        return size.name
    if not in_catalogue(machine):
        return machine.lower() if is_local(machine) else machine
    counts, name = split(machine)
    if counts != (1, 1):
        raise RequestError(
            f"{machine}: this asks about one device: write --machine {name}. time, scale and place take several"
        )
    return named(machine).name


def strict_name(machine: str) -> str:
    """The same, of a name that says which device it is. Raises TensortideError for one that is short for several."""
    if in_catalogue(machine) and meant(machine)[1]:
        device(machine)  # the error that it is ambiguous
    return full_name(machine)


def device_named(name: str) -> Device:
    """The device of that full name.

    Raises:
        TensortideError: there is none, or it is a card of which only the size is known.
        NotHere: a GPU that is not here.
    """
    if size := card(name):
        raise RequestError(f"{size.no_time}. A size is enough for fit, report, count, memory, capture and draw.")
    if is_file(name):
        return own_device(Path(name))
    return _here(name.partition(":")[2])[0] if is_local(name) else device(name)


def machines_of(text: str, *, strict: bool = False, rates: LinkRates = OF_CATALOGUE) -> Machines:
    """The machines that ``text`` means: ``4xh100-sxm``, joined at ``rates`` where they are given. With ``strict`` a
    name short for several is an error.

    Raises TensortideError for several whose links nobody knows, which names the option that gives them.
    """
    counts, name = split(text)
    if is_local(name) and counts != (1, 1):
        raise RequestError(f"{text}: {NAME} is one machine; name a device of the catalogue to ask for several")
    found = Machines(text, device_named(strict_name(name) if strict else full_name(name)), *counts, rates)
    if found.size > 1:
        found.cluster  # noqa: B018  # the error of a rate that nobody knows
    return found


def say_wiring(nodes: Cluster) -> None:
    """Say how several devices are wired, unless any two are joined by a switch."""
    if nodes.size > 1 and nodes.wiring != "switched":
        LOG.info("%s", nodes.about)


def require_distinct(machines: Sequence[object]) -> None:
    """Raise RequestError for a machine that is given twice."""
    names = [str(one) for one in machines]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise RequestError(f"--machine {twice} is given twice: there is nothing to compare")


def kernels_of(name: str) -> str | None:
    """The device of the catalogue whose kernels a step for the machine ``name`` uses: the default for a card of a size;
    None if that is not known."""
    if card(name) is not None:
        return DEFAULT_DEVICE
    if in_catalogue(name):
        return name
    if is_file(name):
        return _alike(own_device(Path(name)))
    machine = _here(name.partition(":")[2])[1]
    if machine.device != "cpu":
        with contextlib.suppress(TensortideError):  # the catalogue does not know every device
            return device(machine.name).name
    return None


def _alike(own: Device) -> str | None:
    """The device of the catalogue whose kernels a device of the user's own is taken to have: one of its architecture,
    else the default; None for a CPU."""
    if own.kind == "cpu":
        return None
    return next((each.name for each in catalogue() if own.arch and each.arch == own.arch), DEFAULT_DEVICE)


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
        raise RequestError(f"there is no {NAME}:{wanted}: write {NAME}, this CPU, or {NAME}:cuda, its GPU")
    with device_context(wanted):
        machine = machine_of(() if wanted == "cpu" else (wanted,))
    found, warnings = local(machine)
    for warning in warnings:
        LOG.warning("%s", warning)
    return found, machine
