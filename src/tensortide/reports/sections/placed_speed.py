"""Speed of a placement against that of one device, and of several groups against one device with the whole batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tensortide.reports.blocks import Fact, data_facts
from tensortide.units import fixed, format_count, format_percent, format_seconds

if TYPE_CHECKING:
    from tensortide.placements.graphs import PlacedStep
    from tensortide.placements.graphs.one_device import OneDevice

__all__ = ["faster", "throughput", "verdict"]


def faster(ratio: float, one: str, alone: str) -> str:
    """Say how much faster a step is than on ``one``, which means ``alone``: as good is what two digits do not tell.

    >>> faster(1.28, "one device", "all on gpu0")
    '1.28 times as fast as one device'
    >>> faster(1.003, "one device", "all on gpu0"), faster(0.9999, "one device", "all on gpu0")
    ('one device is as good (all on gpu0 takes 0.3 % longer)', 'one device is as good (all on gpu0 takes <0.1 % less)')
    """
    if not _alike(ratio):
        return f"{fixed(ratio, 2)} times as fast as {one}"
    difference = f"{format_percent(abs(ratio - 1))} {'longer' if ratio >= 1 else 'less'}"
    return f"{one} is as good ({alone} takes {difference})"


def _alike(ratio: float) -> bool:
    return fixed(ratio, 2) == "1.00"


def verdict(found: PlacedStep, whole: OneDevice | None) -> str:
    """Say what the step takes, and how much faster it is than on one device; of several groups also than the ``whole``
    batch on one device."""
    used = sorted(set(found.device_of.values()))
    where = f"{len(used)} devices" if len(used) > 1 else f"{used[0]} alone"
    replicas = found.ready.replicas
    if replicas is not None:
        where = (
            f"{replicas.count} groups of {where}" if len(used) > 1 else f"{replicas.count} devices, one in each group"
        )
    time = format_seconds(found.step_ns / 1e9)
    if found.stand_ins and found.reference_fits and len(found.simulated.step.cluster.devices) > 1:
        return f"{time} or more per step on {where}: perhaps {_against_one(found)}, as times are unknown."
    return f"{time} per step on {where}{_alone(found)}{_beyond(found, whole)}."


def _alone(found: PlacedStep) -> str:
    """Compare with the best single device, of its group if there are several."""
    if len(found.simulated.step.cluster.devices) == 1:
        other = "the cluster has" if found.ready.replicas is None else "groups have"
        return f": {other} no other device, so there is nothing to choose"
    if not found.reference_fits:
        return "; no single device has the memory"
    return f": {_against_one(found)}"


def _against_one(found: PlacedStep) -> str:
    ratio = found.reference_ns / found.step_ns if found.step_ns else 1.0
    if ratio == 1:
        return "no placement found is faster"
    if ratio < 1 and found.ready.problem.pins and not _alike(ratio):
        return f"{fixed(1 / ratio, 2)} times as long as all ops would take on {found.reference}, were none pinned"
    one = "one device" if found.ready.replicas is None else "one device of each group"
    return faster(ratio, one, f"all on {found.reference}")


def _beyond(found: PlacedStep, whole: OneDevice | None) -> str:
    """Compare several groups with the ``whole`` batch on one device."""
    if whole is None or not whole.fits or not found.step_ns:
        return ""
    return f"; {faster(whole.step_ns / found.step_ns, 'one device with the whole batch', f'all on {whole.name}')}"


def throughput(found: PlacedStep, samples: int | None, whole: OneDevice | None) -> Iterator[Fact]:
    """Yield the samples a second of several groups beside those of one device with the ``whole`` batch; ``samples`` are
    those of the captured step, if it has any."""
    if found.ready.replicas is None or samples is None or not found.step_ns:
        return
    batch = samples * found.ready.problem.batches
    remark = ""
    if whole is not None:
        rate, ratio = _rate(batch, whole.step_ns), whole.step_ns / found.step_ns
        times = "about those" if _alike(ratio) else f"{fixed(ratio, 2)} times those"
        memory = "" if whole.fits else ", if it had the memory"
        took = f"{format_count(rate)}, the whole batch in {format_seconds(whole.step_ns / 1e9)}"
        remark = f"{times} of {whole.name} alone{memory}: {took}"
        yield from data_facts("amount", one_device_samples_per_s=rate)
        yield from data_facts("ns", one_device=whole.step_ns)
        yield from data_facts("flag", one_device_fits=whole.fits)
    yield Fact("samples_per_s", "Samples a second", _rate(batch, found.step_ns), "amount", remark)


def _rate(samples: int, ns: int) -> float:
    return float(f"{samples / ns * 1e9:.4g}")
