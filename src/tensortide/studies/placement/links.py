"""The request for latency and bandwidth of the links of this machine, and their answer."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from tensortide.placements.graphs.measured_links import links_meant, new_cluster
from tensortide.progress import Say, silent
from tensortide.request import Opt, Option, Request, Rule, needs
from tensortide.studies.placement.link_sweep import LinkFit, fitted, link_of, read_sizes, sizes_of
from tensortide.targets.machines import device_named, kernels_of
from tensortide.timing.catalogue import Device, device
from tensortide.timing.links import Link, rate
from tensortide.write import write_file


def _without_host(request: Request) -> str | None:
    lacks = request.has("out") and "host" not in request.get("link")
    return "--out needs the link host: a cluster file has no drives" if lacks else None


@dataclass(frozen=True, kw_only=True)
class LinksRequest(Request):
    """Ask how fast the links of this machine are."""

    GROUP = "The links"

    link: Annotated[
        tuple[Literal["host", "ssd"], ...],
        Opt(
            "Link to measure: host (its memory; the default), or ssd (a file in --offload-dir).",
            common=True,
        ),
    ] = ("host",)
    device: Annotated[
        str | None,
        Opt(
            "Device at the other end: cpu, cuda, cuda:1 (default: a GPU if there is one).", common=True, value="DEVICE"
        ),
    ] = None
    sizes: Annotated[
        tuple[int, ...] | None,
        Opt(
            "Sizes in bytes, ascending: 1e3,1e6,1GB (default: 1e3 to 1e9, as far as memory goes).",
            read=read_sizes,
            common=True,
            value="SIZES",
        ),
    ] = None
    repeats: Annotated[int, Opt("Transfers of each size, fewer of large ones.", least=1)] = 100
    nominal: Annotated[
        float | None, Opt("Nominal bandwidth to compare with: 128Gbit/s, 16GB/s, pcie4.", read=rate, value="SPEED")
    ] = None
    offload_dir: Annotated[Path | None, Opt("Folder of the file for ssd (default: that of /tmp).", value="FOLDER")] = (
        None
    )
    machine: Annotated[
        Path | None,
        Opt(
            "Cluster file that --out copies, with the measured links in it.",
            common=True,
            group="The file of the cluster",
        ),
    ] = None
    between: Annotated[
        str | None,
        Opt(
            "Links of --machine to replace: HOST,DEVICE, patterns (default: of a cpu and a GPU).",
            value="HOST,DEVICE",
            group="The file of the cluster",
        ),
    ] = None
    out: Annotated[
        Path | None,
        Opt(
            "Write the cluster file that --machine of place reads (docs/machines.md).",
            writes=True,
            common=True,
            group="The file of the cluster",
        ),
    ] = None

    RULES = (
        Rule(("out", "link"), _without_host),
        needs("between", "machine", why="it names links of a cluster file"),
        needs("machine", "out", why="it is the file whose figures are replaced"),
    )

    def named_files(self) -> Iterator[tuple[Option, Path]]:
        """Files that options name, but that of --machine: --out may replace it."""
        return ((option, path) for option, path in super().named_files() if option.field.name != "machine")


@dataclass(frozen=True)
class SweptLinks:
    """The fits of the links of ``device``, and the files written."""

    fits: tuple[LinkFit, ...]
    device: str
    wrote: list[Path] = field(default_factory=list)


def answer(asked: LinksRequest, say: Say = silent) -> SweptLinks:
    """Measure the links, and write the file of a cluster if it is asked for; what else is in it is known before."""
    from tensortide.run.device import device_of
    from tensortide.run.link_speed import room_for_sweep, swept_links

    at = str(device_of(asked.device).device)
    filled = None if asked.out is None else _cluster(at, asked)
    sizes = sizes_of(asked.sizes, room_for_sweep(at))
    folder = asked.offload_dir or Path(tempfile.gettempdir())
    fits = fitted(swept_links(dict.fromkeys(asked.link), sizes, folder, at, repeats=asked.repeats, watch=say))
    if asked.out is None or filled is None:
        return SweptLinks(fits, at)
    return SweptLinks(fits, at, [write_file(asked.out, filled(link_of(fits, "host")))])


def _cluster(at: str, asked: LinksRequest) -> Callable[[Link], str]:
    """The text of the cluster file by the measured link of the device ``at``."""
    if asked.machine is not None:
        patterns = [part.strip() for part in asked.between.split(",")] if asked.between else []
        return links_meant(asked.machine, patterns, kind="cpu" if at == "cpu" else "gpu").text
    host = device_named("local")
    return partial(new_cluster, "this machine", host, host if at == "cpu" else _gpu())


def _gpu() -> Device:
    """The GPU of this machine: its row of the catalogue where there is one."""
    known = kernels_of("local:cuda")
    return device_named("local:cuda") if known is None else device(known)
