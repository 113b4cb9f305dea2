"""Machines where a verb takes one: those of the catalogue; ``24GB``, a card of that size; ``local``, the CPU at hand;
``local:cuda``, its GPU; and a JSON file: a device of the user's own, or a cluster, or ``box.json:gpu0``, one device of
a cluster."""

from __future__ import annotations

import contextlib
import functools
import logging
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tensortide.errors import RequestError, TensortideError
from tensortide.timing.cards import card
from tensortide.timing.catalogue import DEFAULT_DEVICE, Device, catalogue, device, meant, named
from tensortide.timing.clusters import Cluster, ClusterDevice, load_cluster
from tensortide.timing.clusters.conversion import cluster_to_nodes
from tensortide.timing.clusters.file import within
from tensortide.timing.collectives.nodes import DEVICE_LINK, NIC, OF_CATALOGUE, LinkRates, Nodes, counts_and_name
from tensortide.timing.durations import Platform
from tensortide.timing.json_file import read_json
from tensortide.timing.local import NAME, Assumed, Local, local
from tensortide.timing.own import own_device
from tensortide.timing.store import installed_software, software_of

LOG = logging.getLogger("tensortide")
_FILE = re.compile(r"(.+?\.json)(?::(.*))?", re.IGNORECASE)
_OF_CLUSTERS = frozenset({"devices", "links", "channels", "comm_channels"})
"""Keys of a cluster file or device graph that no device has."""
_SHOWN = 8
"""Devices of a cluster that an error lists."""


def is_local(name: str) -> bool:
    """Tell whether ``name`` is that of the machine at hand."""
    return name.partition(":")[0].lower() == NAME


def is_file(name: str) -> bool:
    """Tell whether ``name`` is that of a file with a device."""
    return _FILE.fullmatch(name) is not None


def cluster_in(name: str) -> Cluster | None:
    """The cluster of the file in ``name``; None for another machine. Raises TensortideError for a file that is
    wrong."""
    found = _FILE.fullmatch(name)
    return load_cluster(found[1], row_of=row_named) if found is not None and _is_cluster(found[1]) else None


def _is_cluster(file: str) -> bool:
    """Tell the file of a cluster from that of a device. Raises TensortideError for one that is no JSON object."""
    return not read_json(file, dict[str, msgspec.Raw], "a machine").keys().isdisjoint(_OF_CLUSTERS)


def _whole(name: str) -> Cluster | None:
    """The cluster that ``name`` means; None for one device of it, and for another machine."""
    found = _FILE.fullmatch(name)
    return None if found is None or found[2] is not None else cluster_in(name)


def device_in(name: str) -> ClusterDevice | None:
    """The device that ``name`` means in the file of a cluster, which may have others; None for another machine.

    Raises RequestError for a file of several of which none is named, and a name that it has not.
    """
    found = _FILE.fullmatch(name)
    cluster = None if found is None else cluster_in(name)
    if found is None or cluster is None:
        return None
    every = {cluster.devices[number].name: cluster.devices[number] for number in cluster.placeable}
    if found[2] in every:
        return every[found[2]]
    if found[2] is None and len(every) == 1:
        return next(iter(every.values()))
    known = ", ".join([*every][:_SHOWN]) + ", ..." * (len(every) > _SHOWN)
    one = min(every, key=lambda name: every[name].row.kind == "cpu")
    raise RequestError(f"{name}: name one of its devices, as {found[1]}:{one}; they are {known}")


def row_named(name: str) -> Device:
    """The device of a name in the file of a cluster. Raises TensortideError for a name of another cluster."""
    if not is_file(name):
        return device_named(full_name(name))
    if Path(name).exists() and _is_cluster(name):
        raise TensortideError(f"{name} is a cluster: a device is a name, or a file with the figures of one")
    return own_device(Path(name))


def say_unused_tiers(name: str, cluster: Cluster) -> None:
    """Say once that nothing moves to the tiers of a cluster, if it has some."""
    if tiers := {tier.link.name: None for device in cluster.devices for tier in device.tiers}:
        _warn_once(f"{name}: its tiers ({', '.join(tiers)}) are left out: nothing is offloaded here")


@functools.cache
def _warn_once(text: str) -> None:
    LOG.warning("%s", text)


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
    counts, name = counts_and_name(machine)
    if counts != (1, 1):
        raise RequestError(
            f"{machine}: this asks about one device: write --machine {name}. time, scale and place take several"
        )
    return named(machine).name


def strict_name(machine: str) -> str:
    """The name as of ``full_name``. Raises TensortideError for one that is short for several of the catalogue."""
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
        return own_device(Path(name)) if (found := device_in(name)) is None else found.as_row
    return _here(name.partition(":")[2])[0] if is_local(name) else device(name)


def machines_of(text: str, *, strict: bool = False, rates: LinkRates = OF_CATALOGUE) -> Nodes:
    """The machines that ``text`` means: ``4xh100-sxm``, joined at ``rates`` where they are given. With ``strict`` a
    name short for several is an error.

    Raises TensortideError for several whose links nobody knows, which names the option that gives them.
    """
    counts, name = counts_and_name(text)
    cluster = cluster_in(name) if is_file(name) else None
    if cluster is not None:
        if counts != (1, 1) or rates != OF_CATALOGUE:
            option = "a number of devices" if counts != (1, 1) else " or ".join((DEVICE_LINK, NIC))
            raise RequestError(f"{text}: {option} goes with devices of the catalogue: the file has its own")
        if len(cluster.placeable) > 1 and _whole(name) is not None:
            with within(text):
                found = cluster_to_nodes(cluster)
        else:
            found = OF_CATALOGUE.nodes_of(device_named(name), 1)
        say_unused_tiers(name, cluster)
        return found
    if is_local(name) and counts != (1, 1):
        raise RequestError(f"{text}: {NAME} is one machine; name a device of the catalogue to ask for several")
    return rates.nodes_of(device_named(strict_name(name) if strict else full_name(name)), *counts)


def nodes_for(text: str, ranks: int, rates: LinkRates = OF_CATALOGUE) -> Nodes:
    """The devices of a launch of so many ``ranks`` on the machines that ``text`` means: of a single device as many.

    Raises RequestError for machines with fewer devices.
    """
    found = machines_of(text, rates=rates)
    if found.size == 1:
        return rates.spread(found.device, ranks)
    if found.size < ranks:
        raise RequestError(f"--machine {text} has {found.size} devices, and the launch has {ranks} ranks")
    return found


def one_of(text: str) -> str:
    """The name of one device of the machines that ``text`` means."""
    name = counts_and_name(text)[1]
    cluster = _whole(name)
    return full_name(name if cluster is None else f"{name}:{cluster.devices[cluster.placeable[0]].name}")


def say_wiring(nodes: Nodes) -> None:
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
        return _alike(device_named(name))
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
    alike = [each.name for each in catalogue() if own.arch and each.arch == own.arch]
    return own.name if own.name in alike else next(iter(alike), DEFAULT_DEVICE)


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
