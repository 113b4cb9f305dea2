"""Outcome of a step under one of G10's policies."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from tensortide.shown import Show

Tier = Literal["host", "ssd"]


class Traffic(msgspec.Struct, frozen=True):
    """Bytes that a step moves over the wire, by tier and direction."""

    host_in: Annotated[int, Show("Host to device", "bytes", at_width=110)] = 0
    host_out: Annotated[int, Show("Device to host", "bytes", at_width=110)] = 0
    ssd_in: Annotated[int, Show("Drive to device", "bytes", at_width=130)] = 0
    ssd_out: Annotated[int, Show("Device to drive", "bytes", at_width=130)] = 0

    @property
    def total(self) -> Annotated[int, Show(unit="bytes", data=True)]:
        return self.host_in + self.host_out + self.ssd_in + self.ssd_out


class G10Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A step under ``policy``: its time is ``stall_ns + overlap_ns + compute_ns``, where overlap is computing while
    something moves. ``step_ns`` is None if the policy cannot run the step; ``reason`` says why."""

    policy: str
    ideal_ns: int
    step_ns: Annotated[int | None, Show("Step")] = None
    overlap_ns: Annotated[int, Show("Overlap")] = 0
    traffic: Traffic = Traffic()
    reason: str = ""

    @property
    def stall_ns(self) -> Annotated[int | None, Show("Stall")]:
        """Time in which nothing is computed."""
        return None if self.step_ns is None else self.step_ns - self.ideal_ns

    @property
    def compute_ns(self) -> Annotated[int | None, Show("Compute only")]:
        """Time in which the device computes and nothing moves."""
        return None if self.step_ns is None else self.ideal_ns - self.overlap_ns

    @property
    def of_ideal_share(self) -> Annotated[float | None, Show("Ideal / time")]:
        """Ideal time by this time; None if the step does not run."""
        return None if self.step_ns is None else self.ideal_ns / self.step_ns if self.step_ns else 1.0

    @property
    def steps_per_s(self) -> Annotated[float | None, Show("Steps/s", "number", at_width=100)]:
        """Steps in a second; None if the step does not run, or takes no time."""
        return 1e9 / self.step_ns if self.step_ns else None


class Move(msgspec.Struct, frozen=True):
    """A planned move of ``tensor`` to ``place`` once kernel ``out`` starts, and back once kernel ``back`` does, before
    kernel ``needed``. ``around``: it is away over the end of the step."""

    tensor: int
    place: Tier
    out: int
    back: int
    needed: int
    around: bool = False
