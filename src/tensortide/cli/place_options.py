"""Options of ``tensortide place`` and its verbs: the cluster, how the network runs on it, the search."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators

from tensortide.cli.source import TARGET, option
from tensortide.errors import PlacementError

if TYPE_CHECKING:
    from tensortide.studies.placement.placing import Asked

BUDGET = 20_000
"""Placements that are tried of a network of layers."""
PlacedTarget = Annotated[
    str, Parameter(help=f"A network: a JSON file of layers (docs/place.md). Or a step to capture or read. {TARGET}.")
]
NetFile = Annotated[Path, Parameter(help="Network: a JSON file of layers (docs/place.md).")]


@Parameter(name="*")
@dataclass(frozen=True)
class MachineOptions:
    """Options of the cluster, and of how the network runs on it."""

    machine: Annotated[
        Path | None, option("--machine", "Cluster: a JSON file of devices and links (docs/place.md). Needed.")
    ] = None
    batch: Annotated[int | None, option("--batch", "Examples in a batch (default: as the network says).")] = None
    batches: Annotated[int, Parameter(help="Batches that are timed together.", validator=validators.Number(gte=1))] = 1
    in_flight: Annotated[
        int | None,
        Parameter(
            help="Batches in flight at a time, at most (default: 1; of a captured step as its schedule says).",
            validator=validators.Number(gte=1),
            show_default=False,
        ),
    ] = None
    inference: Annotated[bool, option("--inference", "Forward pass alone.")] = False
    compat: Annotated[bool, option("--compat", "Times and memory by the published model, its faults included.")] = False
    utilization: Annotated[
        float, Parameter(help="Share of their peak that ops attain.", validator=validators.Number(gt=0, lte=1))
    ] = 1.0
    link_utilization: Annotated[
        float, Parameter(help="Share of their bandwidth that links attain.", validator=validators.Number(gt=0, lte=1))
    ] = 1.0
    memory_share: Annotated[
        float, Parameter(help="Share of each device's memory to use.", validator=validators.Number(gt=0, lte=1))
    ] = 1.0
    devices: Annotated[
        str | None, option("--devices", "Devices that may be used, by number: 1,2,3 (default: all).")
    ] = None
    groups: Annotated[
        str,
        Parameter(
            help="Layers that share a device: none, block, prefix:N, prefix:TEXT, file:PATH, or coarsen:N for N groups."
        ),
    ] = "none"

    def asked(self, net: Path) -> Asked:
        """Read the network and the cluster."""
        from tensortide.placements import ACCURATE, COMPAT, Settings, read_cluster, read_net
        from tensortide.studies.placement.placing import Asked

        if self.machine is None:
            raise PlacementError("a network is placed on a cluster: give its device graph with --machine FILE.json.")
        settings = Settings(
            batch_size=self.batch,
            batches=self.batches,
            pipeline_batches=1 if self.in_flight is None else self.in_flight,
            include_backward=not self.inference,
            comp_penalization=self.utilization,
            comm_penalization=self.link_utilization,
            device_memory_utilization=self.memory_share,
            mode=COMPAT if self.compat else ACCURATE,
        )
        devices = None
        if self.devices is not None:
            parts = [part.strip() for part in self.devices.split(",")]
            if not all(part.isdecimal() for part in parts):
                raise PlacementError(f"--devices takes numbers of devices, as in 1,2,3, not {self.devices!r}.")
            devices = tuple(map(int, parts))
        return Asked(read_net(net), read_cluster(self.machine), settings, devices, self.groups)


@Parameter(name="*")
@dataclass(frozen=True)
class SearchOptions:
    """Options of the search."""

    algorithm: Annotated[str, Parameter(help="How to search: place algorithms lists them.")] = "best"
    options: Annotated[
        tuple[str, ...], option("--option", "An option of the algorithm: population=50. Repeatable.")
    ] = ()
    budget: Annotated[
        int | None,
        Parameter(
            help="Placements that are tried (default: 20,000; of a captured step 2,000).",
            validator=validators.Number(gte=1),
            show_default=False,
        ),
    ] = None
    time_limit: Annotated[
        float | None,
        option("--time-limit", "Seconds after which the search stops (default: none)."),
        Parameter(validator=validators.Number(gt=0)),
    ] = None
    seed: Annotated[int, Parameter(help="Seed of random choices.", validator=validators.Number(gte=0))] = 0
    threads: Annotated[
        int | None,
        option("--threads", "Threads (default: one per core). The result does not depend on it."),
        Parameter(validator=validators.Number(gte=1)),
    ] = None
    resume: Annotated[
        Path | None, option("--resume", "File of what was simulated: kept, and read if it is there, to go on.")
    ] = None
