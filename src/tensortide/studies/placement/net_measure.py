"""The measuring function that a configuration describes: real batches of its network, trained by PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

from tensortide.errors import PlacementError
from tensortide.placements import Net
from tensortide.placements.genes import OnDevices
from tensortide.studies.placement.config import Config
from tensortide.studies.placement.measured import Measure

GB = 1e9


def measure_of(config: Config, net: Net, devices: Sequence[int], batch: int) -> Measure:
    """The measuring function of ``config`` for ``net`` on ``devices``. Raises PlacementError without one, for a network
    with layers that cannot be trained, and for devices that this machine lacks."""
    from tensortide.profile.net_benchmark import batch_ms, check_trains, torch_device

    asked = config.benchmark
    if asked is None:
        raise PlacementError(
            f"{config.path} has no benchmarking_function, which --measure follows: add it, or give --by."
        )
    check_trains(net)
    names = {number: str(name) for number, name in (asked.device_map or {}).items()}
    for device in devices:
        torch_device(device, names)
    limit = None if asked.gpu_memory_limit is None else asked.gpu_memory_limit * GB

    def measured(placement: dict[str, OnDevices]) -> float | None:
        return batch_ms(
            net,
            placement,
            batch=batch,
            batches=asked.batches,
            dropped=asked.drop_batches,
            rate=asked.lr,
            names=names,
            limit_bytes=limit,
        )

    return measured
