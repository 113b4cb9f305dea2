"""Durations of a graph's ops on a device that need not be here: predictions of their Works."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tensortide.cost import Resolver, count
from tensortide.graph.model import Graph
from tensortide.graph.precision import in_tf32
from tensortide.timing.attention import basis
from tensortide.timing.catalogue import Device, catalogue
from tensortide.timing.durations import Durations, identity
from tensortide.timing.estimates import Provenance
from tensortide.timing.families import KnownWorks, works
from tensortide.timing.figures import figure, last_level_bytes, low_power
from tensortide.timing.forecast import Forecast, ForecastRow
from tensortide.timing.local import COMMAND, Assumed, Local
from tensortide.timing.models.constants import UNCALIBRATED
from tensortide.timing.predict import THROTTLED, predict
from tensortide.timing.prediction import Prediction
from tensortide.timing.rates import CACHED
from tensortide.timing.sequence import in_sequence
from tensortide.timing.store import told
from tensortide.timing.work import Work

CONVOLUTION = "convolution"
TF32_CONVOLUTIONS = 0.29
"""Power of the ratio of fp32 and TF32 rates by which convolutions are faster: the peak is no limit of most. Fitted to
published TF32 steps of ResNet-50 and ResNeXt-101 on an A100 (6 % too fast and 8 % too slow by it)."""


@dataclass(slots=True)
class Known:
    """Works of the ops of earlier Graphs, and predictions of them for one device."""

    works: KnownWorks = field(default_factory=KnownWorks)
    predictions: dict[Work, Prediction] = field(default_factory=dict)


def estimate(
    graph: Graph,
    device: Device,
    *,
    resolver: Resolver | None = None,
    known: Known | None = None,
) -> Durations:
    """Durations of the ops of ``graph`` on ``device``, as if each had the device to itself.

    What of fp32 computes in TF32, and which kernel attention has where ops do not tell, the Graph's meta says.
    Each op has an 80 % interval and a provenance (``Durations.forecast``); the models, and how far they are off, are in
    docs/prediction.md. An op that no rule prices, or in a dtype whose rate the catalogue does not have, takes the time
    of its bytes and is counted in ``unknown``. Views take what they cost the host. Of a conditional whose outcome is
    unknown the arm with most FLOPs runs; the ops of the others take no time, which ``source`` says.

    Args:
        graph: any Graph; of one with sizes as formulas their values count.
        device: of the catalogue (``tensortide.timing.device``) or your own.
        resolver: asked for the cost of ops that have no rule; see ``tensortide.cost.count``.
        known: what earlier Graphs took, on this device and by this resolver; what this one takes is added.
    """
    known = known or Known()
    found, index = works(graph, resolver, known.works)
    tf32 = in_tf32(graph.meta) if figure(device, "tf32_tflops") is not None else ()
    if "products" in tf32:
        found = [work._replace(dtype="tf32") if _is_fp32_product(work) else work for work in found]
    if kernel := graph.meta.attention:
        found = [work._replace(kernel=kernel) if work.family.startswith("attention") else work for work in found]
    if isinstance(device, Local) and device.kind == "cpu":
        found, index = in_sequence(graph, found, index)
    predictions = _predicted(found, device, known.predictions)
    if "convolutions" in tf32 and not isinstance(device, Local):
        predictions = [_in_tf32(each, device) for each in predictions]
    times = [max(1, round(each.ns)) for each in predictions]
    unknown = sum(predictions[row].provenance is Provenance.UNKNOWN for row in index)
    forecast = Forecast(tuple(map(_row, predictions)), tuple(index), device.name if device in catalogue() else "")
    source = _source(device, predictions, "products" in tf32)
    if kernel:
        source += f"; attention by {basis(device, kernel)}"
    ns = [times[row] for row in index]
    if graph.branches:
        running = set(count(graph, resolver=resolver).running)
        ns = [time if op in running else 0 for op, time in enumerate(ns)]
        source += "; of a conditional with unknown outcome its dearest arm"
    return Durations(tuple(ns), source, "estimated", unknown, identity(graph), None, forecast)


def _predicted(found: Sequence[Work], device: Device, known: dict[Work, Prediction]) -> list[Prediction]:
    """Predict each Work, those that are ``known`` not again: what one takes does not depend on the others."""
    new = [work for work in found if work not in known]
    known.update(zip(new, predict(new, device) if new else (), strict=True))
    return [known[work] for work in found]


def captured_elsewhere(graph: Graph, device: Device) -> str:
    """Say that the ops of ``graph`` are those of other kernels than ``device`` has; empty if they are its own."""
    captured = graph.index.main_device.partition(":")[0]
    if (device.kind == "cpu") != (captured == "cpu"):
        return f"of ops captured on {captured}"
    other = graph.meta.machine
    return f"of ops captured for {other}" if other and device in catalogue() and other != device.name else ""


def _is_fp32_product(work: Work) -> bool:
    return work.dtype == "float32" and work.matrix_flops > 0 and not work.family.startswith(CONVOLUTION)


def _in_tf32(found: Prediction, device: Device) -> Prediction:
    """The prediction of a convolution of fp32 in TF32, where arithmetic limits it; any other as it is."""
    work, fp32, tf32 = found.work, device.fp32_tflops, figure(device, "tf32_tflops")
    limited = work.dtype == "float32" and work.family.startswith(CONVOLUTION) and found.bound == "compute"
    if not limited or not fp32 or not tf32 or tf32 <= fp32:
        return found
    least = work.nbytes / device.memory_gbytes_per_s if work.nbytes > CACHED * last_level_bytes(device) else 0.0
    ns = max(found.ns * (fp32 / tf32) ** TF32_CONVOLUTIONS, least)
    below, above = max(found.below, THROTTLED), max(found.above, THROTTLED)
    return found._replace(ns=ns, below=below, above=above, provenance=max(found.provenance, Provenance.EXTRAPOLATED))


def _row(found: Prediction) -> ForecastRow:
    return ForecastRow(
        found.work.family, found.below, found.above, found.provenance, found.model, found.bound, found.host_ns
    )


_SHOWN = ("bf16", "fp16", "fp32")


def _source(device: Device, predictions: Sequence[Prediction], tf32: bool) -> str:
    """Name the device, the rates that the predictions rest on, and what makes them doubtful."""
    rates = [(mode, getattr(device, f"{mode}_tflops")) for mode in (*_SHOWN, *(["tf32"] if tf32 else []))]
    figures = [f"{mode} {_figure(rate)} TFLOP/s" for mode, rate in rates if rate]
    figures.append(f"{_figure(device.memory_gbytes_per_s)} GB/s")
    name = device.name if device.name.startswith(device.vendor) else f"{device.vendor} {device.name}"
    return f"predicted for {name} ({_origin(device)}: {', '.join(figures)}{_caution(device, predictions)})"


def _figure(rate: float) -> str:
    """A rate as a person writes it: measured ones have many digits."""
    return f"{rate:g}" if rate >= 1000 else f"{rate:.4g}"


def _caution(device: Device, predictions: Sequence[Prediction]) -> str:
    if isinstance(device, Local):
        return "" if device.same else "; other software or threads are at hand"
    if isinstance(device, Assumed):
        return f"; run {COMMAND}: these may be off by a factor of 2 or more"
    if device.kind == "cpu":
        return f"; {UNCALIBRATED}"
    cautions = []
    if low_power(device):
        cautions.append(f"at {device.tdp_watts:g} W it may not hold its clock")
    if not any(each.provenance is Provenance.INTERPOLATED for each in predictions):
        cautions.append("by models of other devices")
    return "".join(f"; {caution}" for caution in cautions)


def _origin(device: Device) -> str:
    if isinstance(device, Local):
        return f"calibrated {device.calibration.when[:10]} with {told(device.calibration.machine)}"
    if isinstance(device, Assumed):
        return f"assumed for {device.threads} thread{'s' * (device.threads != 1)}"
    if not device.compute_source and not device.memory_source:
        return "figures of your own"
    if device.kind == "cpu":
        return "catalogue"
    return "datasheet, unverified" if "DOC" in device.compute_source + device.memory_source else "datasheet"
