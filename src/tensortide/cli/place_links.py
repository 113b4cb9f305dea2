"""``tensortide place links``: latency and bandwidth of the links of this machine, for the file of a cluster."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter, validators

from tensortide.cli.local import device_named, kernels_of
from tensortide.cli.show import Files, show
from tensortide.cli.source import OutputOptions, option, progress
from tensortide.errors import PlacementError
from tensortide.timing.catalogue import Device, device
from tensortide.timing.machine import link
from tensortide.write import check_writable, write_file

if TYPE_CHECKING:
    from tensortide.timing.machine import Link


def links(
    *,
    names: Annotated[
        tuple[Literal["host", "ssd"], ...],
        option("--link", "Link to measure: host (its memory), or ssd (a file in --offload-dir). Repeatable."),
    ] = ("host",),
    on: Annotated[
        str | None, option("--device", "Device at the other end: cpu, cuda, cuda:1 (default: a GPU if there is one).")
    ] = None,
    sizes: Annotated[
        str | None,
        option("--sizes", "Sizes in bytes, ascending: 1e3,1e6,1GB (default: 1e3 to 1e9, as far as memory goes)."),
    ] = None,
    repeats: Annotated[
        int, Parameter(help="Transfers of each size, fewer of large ones.", validator=validators.Number(gte=1))
    ] = 100,
    nominal: Annotated[
        str | None, option("--nominal", "Nominal bandwidth to compare with: 128Gbit/s, 16GB/s, pcie4.")
    ] = None,
    folder: Annotated[
        Path | None, option("--offload-dir", "Folder of the file for ssd (default: that of /tmp).")
    ] = None,
    machine: Annotated[
        Path | None, option("--machine", "Cluster file whose link figures are replaced in what --out writes.")
    ] = None,
    between: Annotated[
        str | None,
        option("--between", "Links of --machine to replace: HOST,DEVICE, patterns (default: of a cpu and a GPU)."),
    ] = None,
    written: Annotated[
        Path | None, option("--out", "Write the cluster file that --machine of place reads (docs/place_graphs.md).")
    ] = None,
    files: Files = Files(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Measure the links of this machine over many sizes, and fit latency and bandwidth of each direction.

    Without a GPU memory copies are measured. --out writes them into the file of a cluster.
    """
    from tensortide.reports.sections.link_sweep import document
    from tensortide.run.device import device_of
    from tensortide.run.link_speed import room_for_sweep, swept_links
    from tensortide.studies.placement.link_sweep import fitted, link_of, sizes_of

    files.check()
    if written is not None:
        check_writable(written)
        if "host" not in names:
            raise PlacementError("--out needs the link host: a cluster file has no drives.")
    elif machine is not None:
        raise PlacementError("--machine is for the file that --out writes: give its name.")
    if between is not None and machine is None:
        raise PlacementError("--between names links of a cluster file: give it with --machine.")
    rate = None if nominal is None else float(link(nominal).bytes_per_s)
    at = str(device_of(on).device)
    filled = None if written is None else _cluster(at, machine, between)
    listed = sizes_of(sizes, room_for_sweep(at))
    place = folder or Path(tempfile.gettempdir())
    with progress(out.quiet) as say:
        fits = fitted(swept_links(dict.fromkeys(names), listed, place, at, repeats=repeats, watch=say))
    wrote = [] if filled is None or written is None else [write_file(written, filled(link_of(fits, "host")))]
    made = document(fits, at, rate)
    show(made, out, wrote=[*wrote, *files.write(made, table="sweep")])


def _cluster(at: str, machine: Path | None, between: str | None) -> Callable[[Link], str]:
    """The text of the cluster file by the measured link of the device ``at``: what else is in it is known before."""
    from tensortide.placements.graphs.measured_links import links_meant, new_cluster

    if machine is not None:
        patterns = [part.strip() for part in between.split(",")] if between else []
        return links_meant(machine, patterns, kind="cpu" if at == "cpu" else "gpu").text
    host = device_named("local")
    return partial(new_cluster, "this machine", host, host if at == "cpu" else _gpu())


def _gpu() -> Device:
    """The GPU of this machine: its row of the catalogue where there is one."""
    known = kernels_of("local:cuda")
    return device_named("local:cuda") if known is None else device(known)
