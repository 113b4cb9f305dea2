"""Captured steps that are placed: what is asked of them, and which options go with a network of layers instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, Literal, NamedTuple

from tensortide.errors import RequestError
from tensortide.graph import Graph
from tensortide.importers.door import File, resolve
from tensortide.parallelism.shards import Shard
from tensortide.placements.graphs import Cluster, PlaceOptions
from tensortide.placements.graphs.units import REPLICAS, UNITS
from tensortide.progress import Say, silent
from tensortide.request import Opt, Request, exclusive, needs
from tensortide.targets.opening import opened
from tensortide.targets.reading import ReadingRequest
from tensortide.targets.requests import CaptureRequest
from tensortide.timing.catalogue import DEFAULT_DEVICE, catalogue

AUTO: Final = "auto"
"""The value of ``--shard`` that has modules searched."""
_EXCHANGE = "it says how groups exchange gradients"


class Pin(NamedTuple):
    """A unit or module, and its device."""

    module: str
    device: str


def _pin(text: str) -> Pin:
    """Read ``MODULE=DEVICE``. Raises RequestError for other text."""
    module, equals, device = text.rpartition("=")
    if not (equals and module and device):
        raise RequestError(f"--pin takes MODULE=DEVICE, as in blocks.0=gpu1, not {text!r}")
    return Pin(module, device)


def _shard(text: str) -> Shard | Literal["auto"]:
    """Read ``MODULE=ALONG:PARTS``; ``AUTO`` stays itself. Raises DegreesError for other text."""
    return AUTO if text == AUTO else Shard.parse(text)


@dataclass(frozen=True, kw_only=True)
class StepReading(ReadingRequest):
    """Options of all importers but ``--optimizer``, which is one of networks."""

    optimizer: str = ""


@dataclass(frozen=True, kw_only=True)
class StepCapture(CaptureRequest):
    """Capture of a step that is placed, or its reading: ``--machine`` is its cluster."""

    machines: tuple[str, ...] = ()
    reading: StepReading = field(default_factory=StepReading)


@dataclass(frozen=True, kw_only=True)
class StepRequest(Request):
    """A captured step as it is placed: its capture, and the options of ``placements.graphs.place``, of which some have
    another form here."""

    options: PlaceOptions = field(default_factory=PlaceOptions)
    pin: Annotated[
        tuple[Pin, ...],
        Opt(
            "A unit or module, and its device: blocks.0=gpu1.",
            read=_pin,
            value="UNIT=DEVICE",
            group=UNITS,
        ),
    ] = ()
    shard: Annotated[
        tuple[Shard | Literal["auto"], ...],
        Opt(
            "Modules to divide into shards, each placed on its own: h.*.mlp=output:2 (along batch, output or "
            "reduction). auto: find some that help, by short searches.",
            read=_shard,
            value="MODULES=HOW",
            group=UNITS,
        ),
    ] = ()
    no_overlap: Annotated[
        bool,
        Opt("Groups exchange gradients one by one, beside no computation.", group=REPLICAS),
    ] = False
    capture: StepCapture = field(default_factory=StepCapture)

    RULES = (
        needs("bucket_bytes", "data", why=_EXCHANGE),
        needs("no_overlap", "data", why=_EXCHANGE),
        exclusive("no_overlap", "bucket_bytes", why="gradients go one by one"),
    )

    def __post_init__(self) -> None:
        """Raise RequestError for a unit or module with two pins, too."""
        super().__post_init__()
        pins: dict[str, str] = {}
        for module, device in self.pin:
            if pins.setdefault(module, device) != device:
                raise RequestError(f"--pin: {module} is pinned to {pins[module]} and to {device}")

    @property
    def has_shards_found(self) -> bool:
        """True if modules to divide are to be found."""
        return AUTO in self.shard

    def place_options(self, in_flight: int | None) -> PlaceOptions:
        """The options of ``placements.graphs.place``, with so many micro-batches in flight."""
        pins: Mapping[str, str] = dict(self.pin)
        shards = tuple(each for each in self.shard if isinstance(each, Shard))
        return replace(self.options, pins=pins, in_flight=in_flight, shards=shards, overlap=not self.no_overlap)


def captured(target: str, asked: StepCapture, cluster: Cluster, say: Say = silent) -> Graph:
    """Open ``target``; a step that is captured here has the kernels of the first device that is no CPU."""
    found = resolve(target)
    row = next((each.row for each in cluster.devices if each.row.kind != "cpu"), None)
    if row is not None and not isinstance(found, File) and asked.device != "cpu":
        asked = replace(asked, machines=(row.name if row in catalogue() else DEFAULT_DEVICE,))
    return opened(found, asked, say, durations=False).graph
