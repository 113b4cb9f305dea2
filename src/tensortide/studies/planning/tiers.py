"""Tiers that a plan may move tensors to: the host's memory and a drive."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from tensortide.request import Opt, Request, needs
from tensortide.timing.machine import Link, link
from tensortide.units import parse_bytes

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

    @property
    def links(self) -> tuple[Link, ...]:
        """The links to the tiers that tensors may move to."""
        tiers = {"host": (self.host_link, self.host_memory), "ssd": (self.ssd_link, self.ssd_memory)}
        return tuple(
            replace(given or link(_LINKS[name]), name=name, capacity_bytes=memory)
            for name, (given, memory) in tiers.items()
            if name in (self.offload or "").split(",")
        )
