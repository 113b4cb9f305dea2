"""Calibration of a machine: its ceilings, the constants that were fitted to steps measured on it, and their file.

One file of the store per device and software. It also keeps the steps of a calibration that is underway, so that one
that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from tensortide.errors import GraphFileError
from tensortide.shown import Show
from tensortide.timing.durations import Platform
from tensortide.timing.estimates import Provenance
from tensortide.timing.intervals import WIDE, Pool
from tensortide.timing.models.constants import ANY
from tensortide.timing.models.saturating import PRODUCTS, Saturating, is_product
from tensortide.timing.store import path_of, software_of
from tensortide.timing.work import Work
from tensortide.versioned import Format
from tensortide.write import write_file

ClockName = Literal["wall", "thread", "kernel"]

SUFFIX = ".calibration.json"
FORMAT = Format(
    "calibration", "tensortide calibration", (1,), GraphFileError, "measure again with tensortide time calibrate"
)

DRIFT = 0.1
"""Ceilings that change by more than this part while steps are measured make the calibration doubtful."""


_MOST = 1e15
"""More than any constant: nanoseconds of ten days, a petabyte."""
_WIDEST = 10.0
"""More than any half-width, in natural logarithms."""


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Ceilings of a machine: FLOP per second of large products by dtype, and bytes per second that copies move.

    ``noise_share`` is the part by which the fastest of some equal products falls short of their median; ``links`` has
    bytes per second by direction, as ``host to device``.
    """

    flops_per_s: Mapping[str, float]
    bytes_per_s: Annotated[float, Show("Copies")]
    noise_share: Annotated[float, Show("Noise")] = msgspec.field(default=0.0, name="noise")
    links: Mapping[str, float] = {}

    def __post_init__(self) -> None:
        rates = [*self.flops_per_s.values(), self.bytes_per_s, *self.links.values()]
        if "float32" not in self.flops_per_s or not all(0 < rate < math.inf for rate in rates):
            raise ValueError("rates are positive, and one is of float32")

    def best(self, other: Rates) -> Rates:
        """The higher of both rates, each."""
        return Rates(
            flops_per_s=_higher(self.flops_per_s, other.flops_per_s),
            bytes_per_s=max(self.bytes_per_s, other.bytes_per_s),
            noise_share=max(self.noise_share, other.noise_share),
            links=_higher(self.links, other.links),
        )

    def drift(self, later: Rates) -> float:
        """The largest change to ``later``, as the part of a rate."""
        pairs = [(ns, later.flops_per_s[name]) for name, ns in self.flops_per_s.items() if name in later.flops_per_s]
        return max(abs(b / a - 1) for a, b in [*pairs, (self.bytes_per_s, later.bytes_per_s)])


def _higher(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, float]:
    return {name: max(a.get(name, 0.0), b.get(name, 0.0)) for name in {**a, **b}}


class Chunk(msgspec.Struct, frozen=True):
    """A measured step: its distinct Works, for each op the ``index`` of its Work and its time, and the whole step."""

    name: str
    works: tuple[Work, ...]
    index: tuple[int, ...]
    ns: tuple[float, ...]
    step_ns: float

    def __post_init__(self) -> None:
        if (
            not self.index
            or len(self.index) != len(self.ns)
            or not 0 <= min(self.index) <= max(self.index) < len(self.works)
        ):
            raise ValueError(f"step {self.name} is not of one work and one time per op")
        if not min(self.ns) > 0 or not self.step_ns > 0:
            raise ValueError(f"step {self.name} has times that are not positive")


class Underway(msgspec.Struct, frozen=True, kw_only=True):
    """A calibration that is not complete: its ceilings, and the steps measured so far."""

    when: str
    clock: ClockName
    before: Rates
    chunks: tuple[Chunk, ...] = ()

    def __post_init__(self) -> None:
        if datetime.datetime.fromisoformat(self.when).tzinfo is None:
            raise ValueError("its time has no zone")


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """Constants of one machine and software.

    ``model`` has them by family, relative to ``rates``; ``between_ns``, the share ``overhead`` of an op's time and
    ``refills`` times its refill of the caches are the host's work after it. ``pools`` hold what ops of steps that were
    held out were missed by, by family, ``outside`` those beyond the sizes fitted to, ``step_share`` is the half-width
    of whole steps. ``when`` is in ISO 8601; ``steps`` are the names of the measured ones.
    """

    machine: Platform
    clock: ClockName
    when: Annotated[str, Show("Measured")]
    before: Rates
    after: Rates
    steps: tuple[str, ...]
    model: Saturating
    between_ns: Annotated[float, Show("Between ops")]
    overhead: Annotated[float, Show(unit="share", data=True)]
    pools: Mapping[str, Pool]
    outside: Pool
    step_share: Annotated[float, Show("Steps")] = msgspec.field(name="step")
    cache_bytes: int | None = None
    refills: float = 0.0

    def __post_init__(self) -> None:
        constants = [n for one in self.model.families.values() for n in (one.compute, one.memory, one.launch_ns)]
        if not {ANY, PRODUCTS} <= self.model.families.keys() or not all(0 < n < math.inf for n in constants):
            raise ValueError("its constants are not complete, or not positive")
        added = self.model.sequel
        sizes = [*constants, *self.model.saturation, added.refill_ns, added.page_ns]
        sizes += [self.between_ns, self.overhead, self.refills, self.cache_bytes or 0]
        if not all(0 <= n < _MOST for n in sizes):
            raise ValueError("its constants are out of range")
        if not 0 < added.refill_bytes < _MOST:
            raise ValueError("its sizes are out of range")
        quantiles = [one for pool in (self.outside, *self.pools.values()) for one in (pool.all, *pool.decades.values())]
        if not all(
            0 < n < _WIDEST for n in (self.step_share, *(n for one in quantiles for n in (one.below, one.above)))
        ):
            raise ValueError("its intervals are out of range")
        if (self.machine.threads or 1) < 1:
            raise ValueError("its machine has no threads")

    @property
    def rates(self) -> Rates:
        """The ceilings that the constants are relative to."""
        return self.before.best(self.after)

    @property
    def drift_share(self) -> Annotated[float, Show("Drift")]:
        """The part by which ceilings changed while steps were measured."""
        return self.before.drift(self.after)

    def pool(self, family: str, provenance: Provenance) -> Pool:
        """Residuals of like predictions."""
        if provenance > Provenance.CALIBRATED:
            return self.outside
        return self.pools.get(family) or self.pools.get(PRODUCTS if is_product(family) else ANY, WIDE)


class Stored(msgspec.Struct, frozen=True):
    """The content of a file: the calibration, and the one that is underway."""

    calibration: Calibration | None = None
    underway: Underway | None = None


class _File(msgspec.Struct, frozen=True, kw_only=True):
    format: str = FORMAT.tag
    version: int = FORMAT.version
    stored: Stored


def path_for(machine: Platform, store: Path | None = None) -> Path:
    """The file of ``machine`` and of the software on it."""
    return path_of(machine.name, software_of(machine), SUFFIX, store)


def save(stored: Stored, path: Path) -> Path:
    """Write ``stored`` to ``path``, all or nothing. Raises OutputError if it cannot be written."""
    return write_file(path, msgspec.json.encode(_File(stored=stored)) + b"\n", folders=True)


def load(path: Path) -> Stored:
    """Read a file; nothing is stored in one that is not there. Raises GraphFileError if it is damaged or foreign."""
    return FORMAT.load(path, _File).stored if path.exists() else Stored()
