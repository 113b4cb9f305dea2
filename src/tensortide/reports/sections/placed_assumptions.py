"""Assumptions of a placed step: what its times, its hosts and its exchanges take for granted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tensortide.timing.collectives.constants import CONTENTION
from tensortide.timing.estimate import captured_elsewhere
from tensortide.units import format_bytes, format_percent

if TYPE_CHECKING:
    from tensortide.placements.graphs import PlacedStep
    from tensortide.placements.graphs.hosts import Launch

__all__ = ["assumptions"]

_HOSTS: Mapping[Launch, str] = {
    "eager": "Each device has a process that issues its ops one by one; --launch none leaves this out.",
    "graph": "Each device has a process that issues its ops as captured graphs.",
    "none": "Hosts are taken to issue ops in time: steps of many small ops take longer on a GPU.",
}


def assumptions(found: PlacedStep) -> Iterator[str]:
    """Say what the placed step assumes."""
    hosts = _HOSTS[found.ready.options.launch]
    yield f"Times of ops are predicted for each type of device, not measured; transfers queue on their links. {hosts}"
    units = found.simulated.step.units
    if units.hosts:
        ops = sum(unit in units.hosts for unit in units.of_op)
        yield (
            f"Ops that read a value or work on tensors in the host's memory are pinned to the first CPU: {ops:,}. The "
            "hosts of other devices do not wait for them."
        )
    if partly := [f"{format_percent(1 - share, 1)} on {name}" for name, share in found.coverage.items() if share < 1]:
        yield f"Unknown times, for which that of their bytes stands in, wherever ops are placed: {', '.join(partly)}."
    yield from _captured_elsewhere(found)
    if whole := found.ready.sharded.whole:
        reasons = list(dict.fromkeys(op.why for op in whole))
        listed = "; ".join(reasons[:2]) + "; ..." * (len(reasons) > 2)
        yield f"{len(whole):,} ops of modules in shards run whole, with the first shard: {listed}."
    replicas = found.ready.replicas
    if replicas is not None:
        yield (
            f"Each of {replicas.count} groups has the step on 1/{replicas.count} of the captured batch; devices, "
            f"times, memory, the Plan and the Timeline are those of the first. {_exchange(found)}"
        )
    if found.ready.problem.batches > 1:
        yield f"The captured step is that of one micro-batch{'' if replicas is None else ' of all groups'}."


def _captured_elsewhere(found: PlacedStep) -> Iterator[str]:
    """Say on which devices, of those in use, ops are taken to have the kernels of another kind."""
    names: dict[str, list[str]] = {}
    used = set(found.device_of.values())
    for device in found.simulated.step.cluster.devices:
        if device.name in used and (why := captured_elsewhere(found.ready.graph, device.row)):
            names.setdefault(why, []).append(device.name)
    for why, devices in names.items():
        unknown = ", and their workspace is not known" * any(name in found.unknown_workspace for name in devices)
        those = "these devices" if len(devices) > 1 else "this device"
        yield f"{', '.join(devices)}: times are {why}; the kernels of {those} may be others{unknown}."


def _exchange(found: PlacedStep) -> str:
    """Say how gradients are exchanged."""
    beside = found.simulated.step.beside
    if beside is None:
        return "Gradients are exchanged one by one, beside no computation of their device."
    first = f", the first of {format_bytes(beside.first_bytes)}" * (beside.first_bytes != beside.bucket_bytes)
    return (
        f"Gradients are exchanged in buckets of {format_bytes(beside.bucket_bytes)}{first}, one dtype each, as they "
        f"become ready, in buffers that peaks include; computation beside them is {format_percent(CONTENTION, 1)} "
        "slower, and the update begins once all have arrived."
    )
