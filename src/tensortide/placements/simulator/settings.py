"""Settings of a simulated run: batches, factors, memory, and the variants of other simulators."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral
from typing import Literal

from tensortide.errors import TensortideError
from tensortide.placements.modes import ACCURATE, Mode
from tensortide.placements.op_times.times import DTYPES, Rates
from tensortide.placements.op_times.work import OPTIMIZERS
from tensortide.placements.simulator.routing import Egress

LEAST_SHARE = 1e-9
"""Share of a rate, or of memory, below which nothing that is predicted has a meaning."""
Ties = Literal["heap", "fifo"]
Release = Literal["backward", "last_use"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of ``simulate``; the names and defaults of the first eight are the published ones.

    batch_size: rows of every tensor; None: as the net spec says.
    batches: batches that are run; the makespan is that of all of them.
    pipeline_batches: batches in flight at the same time, at most.
    include_backward: run the backward part of every layer, too.
    comp_penalization, comm_penalization: shares of the datasheet's rates that ops and transfers attain.
    device_memory_utilization: share of each device's memory that may be used.
    memory_penalization_factor: milliseconds per byte of over-use that are added to the score; None: a run with any
        over-use scores -1.
    mode: which of the published faults are corrected.
    ties: order of events with equal ends: that of the published binary heap, or first in, first out.
    egress: what transfers queue on: the channel of their link, or one bus for each source device.
    op_gap_us: idle time of a device after each op that takes time.
    transfer_overhead_us: idle time of a channel after each transfer.
    priority: order of the ops that wait for a device: None for first come, first served (the ready time, then a
        counter), or a number for each layer in topological order, the smallest first.
    release: when activations are released: by the backward part of their consumers, or with ``last_use`` by the forward
        part of the last consumer, for graphs that have no backward part or contain it already. Without a backward part
        the published simulator never releases any; None: as the mode has it.
    memory_utilization, launch_us, dtype: see ``Rates``; used by the corrections alone.
    optimizer: a name of ``OPTIMIZERS``, whose state is resident and whose update takes time; used by the corrections
        alone. With one batch in flight, every batch is a step and updates the weights; batches that are in flight
        together are micro-batches of one step, which updates them once.
    """

    batch_size: int | None = None
    batches: int = 1
    pipeline_batches: int = 1
    include_backward: bool = True
    comp_penalization: float = 1.0
    comm_penalization: float = 1.0
    device_memory_utilization: float = 1.0
    memory_penalization_factor: float | None = None
    mode: Mode = ACCURATE
    ties: Ties = "heap"
    egress: Egress = "link"
    op_gap_us: float = 0.0
    transfer_overhead_us: float = 0.0
    priority: tuple[float, ...] | None = None
    release: Release | None = None
    memory_utilization: float = 1.0
    launch_us: float = 5.0
    dtype: str = "float32"
    optimizer: str = "sgd"

    def __post_init__(self) -> None:
        counts: dict[str, object] = {
            "batches": self.batches,
            "pipeline_batches": self.pipeline_batches,
            "batch_size": self.batch_size,
        }
        shares = ("comp_penalization", "comm_penalization", "device_memory_utilization", "memory_utilization")
        others = ("op_gap_us", "transfer_overhead_us", "launch_us", "memory_penalization_factor")
        for name in counts:
            value: object = getattr(self, name)
            if value is not None and not (isinstance(value, Integral) and int(value) >= 1):
                raise TensortideError(f"{name} is {value}: a whole number, 1 or more.")
        for name in shares:
            if not LEAST_SHARE <= getattr(self, name) < math.inf:
                raise TensortideError(f"{name} is {getattr(self, name)}: {LEAST_SHARE:g} or more, and finite.")
        for name in others:
            if not 0 <= (getattr(self, name) or 0) < math.inf:
                raise TensortideError(f"{name} is {getattr(self, name)}: 0 or more, and finite.")
        choices: dict[str, tuple[str | None, ...]] = {
            "ties": ("heap", "fifo"),
            "release": (None, "backward", "last_use"),
            "dtype": tuple(DTYPES),
            "optimizer": tuple(OPTIMIZERS),
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise TensortideError(f"{name} is {getattr(self, name)!r}: one of {', '.join(map(str, known))}.")
        if self.release == "last_use" and self.include_backward:
            raise TensortideError("release='last_use' is for runs without a backward part: set include_backward=False.")

    @property
    def releases_at_last_use(self) -> bool:
        """True if the forward part of the last consumer releases an activation."""
        corrected = self.mode.training_memory and not self.include_backward
        return corrected if self.release is None else self.release == "last_use"

    @property
    def rates(self) -> Rates:
        """Utilisations of ops and links."""
        return Rates(
            self.comp_penalization, self.comm_penalization, self.memory_utilization, self.launch_us, self.dtype
        )
