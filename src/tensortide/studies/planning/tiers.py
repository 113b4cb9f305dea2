"""Tiers that a plan may move tensors to: the host's memory and a drive."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from tensortide.errors import RequestError
from tensortide.request import Opt, Request, needs, option_of
from tensortide.targets.machines import device_in
from tensortide.timing.links import Link, link
from tensortide.units import parse_bytes

LOG = logging.getLogger("tensortide")
_LINKS = {"host": "pcie4", "ssd": "nvme"}
"""The link to each tier, unless one is given."""


@dataclass(frozen=True, kw_only=True)
class TiersRequest(Request):
    """The tiers that tensors may move to, with the links to them."""

    GROUP = "Tensors that move away"

    offload: Annotated[
        Literal["host", "ssd", "host,ssd"] | None,
        Opt(
            "Also move tensors away and back: to the host's memory (host), a drive (ssd), or both (host,ssd).",
            common=True,
            value="TIERS",
        ),
    ] = None
    host_link: Annotated[
        Link | None,
        Opt("Link to the host: pcie3, pcie4, pcie5, or a speed (25GB/s,10us); default: pcie4.", read=link),
    ] = None
    ssd_link: Annotated[Link | None, Opt("Link to the drive: nvme, or a speed (default: nvme).", read=link)] = None
    host_memory: Annotated[
        int | None, Opt("Memory of the host that tensors may take (default: no limit).", read=parse_bytes)
    ] = None
    ssd_memory: Annotated[
        int | None, Opt("Space on the drive that tensors may take (default: no limit).", read=parse_bytes)
    ] = None

    RULES = (
        needs("host_link", offload=("host", "host,ssd")),
        needs("host_memory", offload=("host", "host,ssd")),
        needs("ssd_link", offload=("ssd", "host,ssd")),
        needs("ssd_memory", offload=("ssd", "host,ssd")),
    )

    def on(self, machine: str | None) -> TiersRequest:
        """The same with the links and capacities of ``machine``, if it is a device of a cluster file with tiers.

        Raises RequestError for an option beside a figure of the file, and for tiers that share a queue.
        """
        device = None if machine is None else device_in(machine)
        if device is None:
            return self
        wanted = [name for name in _LINKS if name in (self.offload or "").split(",")]
        for name in wanted:
            if name not in device.links and getattr(self, f"{name}_link") is None:
                LOG.info(
                    "%s has no tier %s: its link is %s, unless --%s-link says other", machine, name, _LINKS[name], name
                )
        asked = [name for name in wanted if name in device.links]
        if others := [name for name in device.links if name not in asked]:
            LOG.info("%s: nothing moves to %s: --offload takes host and ssd", machine, " or ".join(others))
        if len({device.queue(name) for name in asked}) < len(asked):
            raise RequestError(
                f"--offload {self.offload}: in {machine} they share a queue, as one over the other does; a plan counts "
                "with a link for each: --offload host or --offload ssd moves to one, and takes the file's link"
            )
        found: dict[str, Any] = {}
        for name in asked:
            link = device.links[name]
            for key, value in ((f"{name}_link", link), (f"{name}_memory", link.capacity_bytes)):
                if value is not None and getattr(self, key) is not None:
                    raise RequestError(f"{option_of(type(self), key).name}: {machine} has it already: leave one out")
                found |= {} if value is None else {key: value}
        return replace(self, **found)

    @property
    def links(self) -> tuple[Link, ...]:
        """The links to the tiers that tensors may move to."""
        tiers = {"host": (self.host_link, self.host_memory), "ssd": (self.ssd_link, self.ssd_memory)}
        return tuple(
            replace(given or link(_LINKS[name]), name=name, capacity_bytes=memory)
            for name, (given, memory) in tiers.items()
            if name in (self.offload or "").split(",")
        )
