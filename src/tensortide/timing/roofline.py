"""Durations from FLOPs, bytes and a device: a launch, then the slower of computing and moving memory."""

from __future__ import annotations

from typing import NamedTuple

from tensortide.cost import Cost, OpCost, Resolver, count
from tensortide.graph.model import Graph
from tensortide.timing.catalogue import Device
from tensortide.timing.durations import Durations, identity
from tensortide.timing.families import compute_dtype
from tensortide.timing.rates import matrix_tflops, vector_tflops


class Efficiency(NamedTuple):
    """The three constants between a datasheet and an op: shares of peak rate and bandwidth, and the least time."""

    compute: float
    memory: float
    launch_ns: float
    origin: str


_FITTED = {
    "Ampere sm80": Efficiency(0.73, 0.66, 5000.0, "as bf16 matrix products on A100"),
    "Hopper": Efficiency(0.83, 0.81, 3300.0, "as bf16 matrix products on H100"),
    "Ada": Efficiency(0.59, 0.84, 2400.0, "as bf16 matrix products on L40S"),
}
"""By architecture: fitted on public sweeps of bf16 matrix products, and taken for every op."""

_GENERIC = Efficiency(0.71, 0.77, 3400.0, "the mean of A100, H100 and L40S, not of this device")
"""Geometric means of the fitted ones, for what has none."""

_CPU = Efficiency(1.0, 1.0, 1500.0, "rates of a CPU being achieved ones; uncalibrated: expect a factor of 2")


def efficiency(device: Device) -> Efficiency:
    """The constants for ``device``: of its architecture if they were fitted, else generic ones."""
    if device.kind == "cpu":
        return _CPU
    return next((found for arch, found in _FITTED.items() if device.arch.startswith(arch)), _GENERIC)


VIEW_NS = 1500
"""What an op that only renames memory costs the host (the device nothing), in nanoseconds: the median of eight kinds of
views of a tensor with a gradient, called one after the other in PyTorch 2.13 on one core of a server CPU."""


def estimate(graph: Graph, device: Device, *, resolver: Resolver | None = None, tf32: bool = False) -> Durations:
    """Durations of the ops of ``graph`` on ``device``, as if each had the device to itself.

    An op takes ``o + max(F / (e P), B / (b BW))``: its FLOPs by our rules at the device's dense peak for their dtype
    (products at the rate of the matrix units, the rest at that of fp32), its algorithmic bytes at the memory's
    bandwidth; ``e``, ``b`` and ``o`` are constants of the architecture, generic where none were fitted (``source``
    says which). Views and allocations take ``VIEW_NS``. An op that no rule prices, or in a dtype whose rate the
    catalogue has not, takes the time of its bytes and is counted in ``unknown``.

    Args:
        graph: any Graph; of one with sizes as formulas their values count.
        device: of the catalogue (``tensortide.timing.device``) or your own.
        resolver: asked for the cost of ops that have no rule; see ``tensortide.cost.count``.
        tf32: whether fp32 products use the tf32 units, where the device has some.

    Notes:
        Against published fp32 steps of BERT-large and GPT-2-large, forward and backward (49 on nine GPUs), the sums are
        off by 27 % on average: 11 % on P100, V100 and A100; 19 to 47 % too short on cards of 75 W, which do not hold
        their clocks; mostly 17 to 58 % too long on AMD's, whose matrix units for fp32 the catalogue leaves out. A CPU
        must be calibrated before it predicts: its durations are of the right order at best.
    """
    constants = efficiency(device)
    counted = count(graph, resolver=resolver)  # the costs of like ops are one object
    known: dict[tuple[int, str], tuple[int, bool]] = {}
    times: list[tuple[int, bool]] = []
    for op, cost in zip(graph, counted.costs, strict=True):
        key = (id(cost), compute_dtype(op.inputs or op.outputs))
        if key not in known:
            known[key] = _time(cost, device, constants, key[1], tf32)
        times.append(known[key])
    ns = tuple(time for time, _ in times)
    unknown = sum(not priced for _, priced in times)
    return Durations(ns, _source(device, constants, tf32), "estimated", unknown, identity(graph))


def _time(cost: OpCost, device: Device, constants: Efficiency, dtype: str, tf32: bool) -> tuple[int, bool]:
    """Nanoseconds of an op, and whether both its cost and the device's rate for it are known."""
    if cost.how == "view":
        return VIEW_NS, True
    moving = int(cost.nbytes) / (constants.memory * device.memory_gbytes_per_s)
    computing = None if cost.cost is None else _compute_ns(cost.cost, device, dtype, tf32)
    slower = moving if computing is None else max(moving, computing / constants.compute)
    return max(1, round(constants.launch_ns + slower)), computing is not None


def _compute_ns(cost: Cost, device: Device, dtype: str, tf32: bool) -> float | None:
    """Nanoseconds of the arithmetic at peak; None if the device's peak is unknown.

    Products that a mask leaves out are not computed, those that the kernel does again are.
    """
    macs = int(cost.macs if cost.active_macs is None else cost.active_macs) + int(cost.recompute_macs)
    others = int(cost.elementwise_flops) + int(cost.int_ops)
    parts = ((2 * macs, matrix_tflops(device, dtype, tf32=tf32)), (others, vector_tflops(device, dtype)))
    total = 0.0
    for work, tflops in parts:
        if work and not tflops:
            return None
        total += work / (1000 * tflops) if tflops else 0.0
    return total


_SHOWN = ("bf16", "fp16", "fp32")


def _source(device: Device, constants: Efficiency, tf32: bool) -> str:
    rates = [(mode, getattr(device, f"{mode}_tflops")) for mode in (*_SHOWN, *(["tf32"] if tf32 else []))]
    figures = [f"{mode} {rate:g} TFLOP/s" for mode, rate in rates if rate]
    figures.append(f"{device.memory_gbytes_per_s:g} GB/s")
    name = device.name if device.name.startswith(device.vendor) else f"{device.vendor} {device.name}"
    return (
        f"estimated: roofline of {name} ({_origin(device)}: {', '.join(figures)}; "
        f"{constants.compute:.0%} and {constants.memory:.0%} of it, {constants.launch_ns / 1000:g} us per op: "
        f"{constants.origin}{_caution(device)})"
    )


def _caution(device: Device) -> str:
    low = device.tdp_watts is not None and device.tdp_watts <= 75
    return f"; at {device.tdp_watts:g} W it may not hold its clock: up to half as fast" if low else ""


def _origin(device: Device) -> str:
    if not device.compute_source and not device.memory_source:
        return "figures of your own"
    if device.kind == "cpu":
        return "catalogue"
    return "datasheet, from memory" if "DOC" in device.compute_source + device.memory_source else "datasheet"
