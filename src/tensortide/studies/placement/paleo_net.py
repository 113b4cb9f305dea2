"""A network as Paleo predicts it: its layers, their times on one device, and steps on many of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tensortide.errors import RequestError
from tensortide.request import Arg, Opt, Request
from tensortide.shown import Show
from tensortide.studies.placement.placed_workload import refuse_workload
from tensortide.timing import paleo
from tensortide.timing.paleo.scaling import NETWORK, WORKERS
from tensortide.timing.paleo.step import DEVICE, PLATFORM

NS = 1e6
MOST = 10**9
"""Most workers that can be asked for."""


def _workers(text: str) -> tuple[int, ...]:
    """Read numbers of workers, and sort them. Raises RequestError for anything else."""
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"\d{1,10}", part, re.ASCII) and 0 < int(part) <= MOST for part in parts):
        raise RequestError(f"--workers takes numbers from 1 to {MOST:,}, as in 1,3,256, not {text!r}")
    return tuple(sorted({int(part) for part in parts}))


@dataclass(frozen=True, kw_only=True)
class PaleoRequest(Request):
    """Ask what Paleo predicts of a network."""

    GROUP = "The published model"

    net: Annotated[Path, Arg("Network: a JSON file of layers (docs/paleo.md).")]
    device: Annotated[str, Opt(f"Device: {', '.join(paleo.DEVICES)}.", common=True, value="NAME")] = DEVICE
    network: Annotated[
        str, Opt(f"Network between workers: {', '.join(paleo.NETWORKS)}.", common=True, value="NAME")
    ] = NETWORK
    platform: Annotated[
        str, Opt(f"Framework, for its shares of the peaks: {', '.join(paleo.PLATFORMS)}.", common=True, value="NAME")
    ] = PLATFORM
    batch: Annotated[
        int | None,
        Opt("Examples of a worker, with strong scaling of all (default: the network's).", least=1, common=True),
    ] = None
    workers: Annotated[
        Sequence[int],
        Opt("Numbers of workers, such as 1,3,256 (default: powers of 2 to 128).", read=_workers, value="NUMBERS"),
    ] = WORKERS
    scaling: Annotated[Literal["weak", "strong"], Opt("Batch of each worker fixed (weak), or that of all.")] = "weak"
    overlap: Annotated[bool, Opt("Let computing and moving data overlap in each layer.")] = False


@dataclass(frozen=True)
class PaleoLayer:
    """One layer: its output, weights and times."""

    layer: Annotated[str, Show("Layer", "code")]
    kind: Annotated[str, Show("Kind", at_width=96)]
    output: Annotated[str, Show("Output", "code")]
    parameters: Annotated[int, Show("Parameters", zero="")]
    forward_ns: Annotated[float, Show("Forward", zero="")]
    data_ns: Annotated[float, Show("Data gradient", zero="")]
    weights_ns: Annotated[float, Show("Weight gradient", zero="")]


@dataclass(frozen=True)
class PaleoWorkers:
    """A step on so many workers: computing, each exchange, and the speed-up with the exchange by a tree."""

    workers: Annotated[int, Show("Workers")]
    batch: Annotated[int, Show("Batch")]
    compute_ns: Annotated[float, Show("Computing")]
    one_to_all_ns: Annotated[float, Show("One to all")]
    tree_ns: Annotated[float, Show("Tree")]
    butterfly_ns: Annotated[float, Show("Butterfly")]
    mixing_ns: Annotated[float, Show("Mixing", at_width=90)]
    speedup_factor: Annotated[float, Show("Speed-up, tree")]


@dataclass(frozen=True)
class PaleoNet:
    """The predictions: ``step`` is one on one device, ``many`` those on growing numbers of workers; of a network whose
    layers are split over workers ``hybrid`` alone."""

    asked: PaleoRequest
    net: paleo.Net
    step: paleo.StepTime | None
    many: paleo.Scaling | None
    hybrid: paleo.HybridTime | None

    @property
    def batch(self) -> int:
        """Rows of a batch."""
        return self.asked.batch or self.net.batch()

    @property
    def parameters(self) -> Annotated[int, Show("Parameters")]:
        """Weights and biases of all layers."""
        return self.net.params()

    @property
    def layers(self) -> tuple[PaleoLayer, ...]:
        """Every layer, in the order of the file."""
        return tuple(self._layers())

    def _layers(self) -> Iterator[PaleoLayer]:
        overlap = self.asked.overlap
        times = {} if self.step is None else {one.name: one for one in self.step.layers}
        for layer in self.net.layers(self.asked.batch):
            time = times.get(layer.name)
            parts = () if time is None else (time.forward, time.data, time.weights)
            ns = [part.together(overlap) * NS for part in parts] or [0.0, 0.0, 0.0]
            yield PaleoLayer(layer.name, layer.kind, "x".join(map(str, layer.output)), layer.params, *ns)

    @property
    def workers(self) -> tuple[PaleoWorkers, ...]:
        """Steps on growing numbers of workers."""
        if self.many is None:
            return ()
        rows = zip(self.many.rows, self.many.speedups("TreeAllReduce"), strict=True)
        found = []
        for row, up in rows:
            one, tree, butterfly, mixing = (ms * NS for ms in row.collectives.values())
            found.append(PaleoWorkers(row.workers, row.batch, row.compute * NS, one, tree, butterfly, mixing, up))
        return tuple(found)


def answer(asked: PaleoRequest) -> PaleoNet:
    """The predictions. Raises TensortideError for a file that is no network, a name that Paleo does not have, and
    options that a net whose layers are split does not take."""
    refuse_workload(asked.net)
    net = paleo.read(asked.net)
    if net.split:
        if asked.overlap or asked.scaling != "weak" or asked.workers != WORKERS:
            raise RequestError(
                f"{asked.net} splits its layers over workers that it names: --overlap, --scaling and --workers are of "
                "other nets"
            )
        split = paleo.hybrid(net, asked.device, asked.network, batch=asked.batch, platform=asked.platform)
        return PaleoNet(asked, net, None, None, split)
    step = paleo.step(net, asked.device, batch=asked.batch, platform=asked.platform, overlap=asked.overlap)
    many = paleo.scaling(
        net,
        asked.device,
        asked.network,
        workers=asked.workers,
        batch=asked.batch,
        mode=asked.scaling,
        platform=asked.platform,
        overlap=asked.overlap,
    )
    return PaleoNet(asked, net, step, many, None)
