"""Outcome of a step under one of G10's policies."""

from __future__ import annotations

from typing import Literal

import msgspec

Tier = Literal["host", "ssd"]


class Traffic(msgspec.Struct, frozen=True):
    """Bytes that a step moves over the wire, by tier and direction."""

    host_in: int = 0
    host_out: int = 0
    ssd_in: int = 0
    ssd_out: int = 0

    @property
    def total(self) -> int:
        return self.host_in + self.host_out + self.ssd_in + self.ssd_out


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A step under ``policy``: its time is ``stall_ns + overlap_ns + compute_ns``, where overlap is computing while
    something moves. ``time_ns`` is None if the policy cannot run the step; ``reason`` says why."""

    policy: str
    ideal_ns: int
    time_ns: int | None = None
    overlap_ns: int = 0
    traffic: Traffic = Traffic()
    reason: str = ""

    @property
    def stall_ns(self) -> int | None:
        """Time in which nothing is computed."""
        return None if self.time_ns is None else self.time_ns - self.ideal_ns

    @property
    def compute_ns(self) -> int | None:
        """Time in which the device computes and nothing moves."""
        return None if self.time_ns is None else self.ideal_ns - self.overlap_ns

    @property
    def of_ideal(self) -> float | None:
        """Ideal time by this time; None if the step does not run."""
        return None if self.time_ns is None else self.ideal_ns / self.time_ns if self.time_ns else 1.0


class Move(msgspec.Struct, frozen=True):
    """A planned move of ``tensor`` to ``place`` once kernel ``out`` starts, and back once kernel ``back`` does, before
    kernel ``needed``. ``around``: it is away over the end of the step."""

    tensor: int
    place: Tier
    out: int
    back: int
    needed: int
    around: bool = False
