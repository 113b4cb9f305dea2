"""Prediction of one step: its time with an interval, in parts, and the memory of a rank."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from msgspec.structs import astuple

from tensortide.parallelism.closed.columns import Columns, Step, columns, layer_of
from tensortide.parallelism.closed.configuration import HALF, Configuration, check, layers_of_stages
from tensortide.parallelism.closed.constants import FUSED, Reference, StepConstants, pool_of, shipped
from tensortide.parallelism.closed.formula import head_ns, layer_ns, parts
from tensortide.parallelism.closed.memory import RankMemory, rank_memory
from tensortide.parallelism.closed.transformer import Transformer
from tensortide.timing.attention import is_known
from tensortide.timing.collectives import Nodes
from tensortide.timing.estimates import Estimate, Provenance
from tensortide.timing.intervals import UNMEASURED


class StepPrediction(NamedTuple):
    """Time of a step (``time``, and ``parts`` of it in nanoseconds) and memory of its fullest rank.

    ``factor``: measured over closed form of its layer, None where few or no steps like it were measured. ``stages_ns``
    of both passes of a micro-batch through each stage, and ``layers`` of each.
    """

    configuration: Configuration
    time: Estimate
    parts: dict[str, float]
    memory: RankMemory
    factor: float | None = None
    stages_ns: tuple[float, ...] = ()
    layers: tuple[int, ...] = ()


def known_columns(step: Step) -> tuple[Columns, float | None]:
    """The columns of ``step``, with the factor of its layer; None where it is not known."""
    found, factor = columns([step]), shipped().factors.get(layer_of(step))
    return (found if factor is None else found._replace(factor=np.array([factor]))), factor


def predict_step(
    shape: Transformer, configuration: Configuration, nodes: Nodes, constants: StepConstants | None = None
) -> StepPrediction:
    """Predict a step of ``shape`` on all devices of ``nodes`` by the closed form.

    ``constants`` are the shipped ones unless given; with them, the time of a layer that was measured is corrected. The
    interval is that of steps held out in their fit; it is a factor of two at least on devices other than theirs.

    Raises:
        DegreesError: a degree does not divide the transformer, the batch or the devices.
        TensortideError: a rate of the device is unknown.
    """
    check(configuration, shape, nodes.size)
    step = Step(shape, configuration, nodes)
    steps, factor = known_columns(step) if constants is None else (columns([step]), None)
    known_constants = shipped().constants if constants is None else constants
    columned = parts(known_constants, steps)
    found = {name: float(column[0]) for name, column in columned._asdict().items()}
    ns = sum(found.values())
    alike = nodes.device.name == Reference().device and configuration.element_bytes == HALF
    known = alike and nodes.size <= Reference().devices
    half = pool_of(nodes.count, known=factor is not None).of(ns)
    below, above = (half.below, half.above) if known else (max(UNMEASURED, half.below), max(UNMEASURED, half.above))
    if (
        configuration.fused_attention
        and configuration.element_bytes == HALF
        and is_known(nodes.device, configuration.kernel)
    ):
        below, above, _ = astuple(FUSED.all)
    provenance = Provenance.INTERPOLATED if known else Provenance.EXTRAPOLATED
    time = Estimate.of(ns, below, above, provenance, "step")
    layers = layers_of_stages(shape.layers, configuration.pipeline * configuration.chunks)
    stages = float(layer_ns(known_constants, steps)[0]) * np.array(layers, float)
    stages[-1] += float(head_ns(known_constants, steps)[0])
    memory = rank_memory(shape, configuration)
    return StepPrediction(configuration, time, found, memory, factor, tuple(stages.tolist()), tuple(layers))
