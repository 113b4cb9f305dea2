"""Result of playing a plan: when each step runs on which engine, why ops waited, and the bytes of every place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from tensortide.plans.events.primitives import Primitive
from tensortide.plans.instance import DEVICE

NOTHING = -1
"""Stands for a storage where bytes are workspace, and for a step where there was none."""
Cause: TypeAlias = Literal["fetch", "copy", "room", "serial"]


def engine_name(link: str, *, inwards: bool) -> str:
    """The name of a copy engine."""
    return f"{link} {'in' if inwards else 'out'}"


class Stall(NamedTuple):
    """A stretch of time in which the compute engine waited before it could start ``step``, for one ``cause``.

    ``fetch``: the fetch ``by`` of ``storage``, which the op touches, had not ended. ``copy``: nor had the copy ``by``
    out of ``storage``, into which the op writes. ``room``: in ``place`` there was none until ``by`` ended and
    ``storage`` was released; what asked for it is ``asks``: ``step``, or a transfer listed before it. ``serial``:
    transfers are synchronous, and ``by`` had not ended.
    """

    step: int
    start_ns: int
    end_ns: int
    cause: Cause
    by: int
    storage: int
    asks: int
    place: str = DEVICE


class Change(NamedTuple):
    """Bytes that a place gains at a time, or loses: by which step, for which storage (-1: workspace)."""

    time_ns: int
    nbytes: int
    storage: int
    step: int


class Played(msgspec.Struct, frozen=True):
    """A plan as played. ``steps`` are those of the plan written out, each with its issue, start, end and ``engine``
    ("device", or a copy engine such as "host out"; empty for a release).

    ``origin`` is the place of each step in the plan's own list, and ``unsaid`` marks releases that the plan leaves
    unsaid. ``resident_bytes`` are those on the device right after the issue of each step. ``makespan_ns = base_ns +
    recompute_ns + stall_ns + tail_ns``, where the tail is what transfers outlast the last op. ``before_bytes`` and
    ``changes`` are by place: the device and the name of every link.
    """

    steps: tuple[Primitive, ...]
    origin: tuple[int, ...]
    unsaid: tuple[bool, ...]
    issue_ns: tuple[int, ...]
    start_ns: tuple[int, ...]
    end_ns: tuple[int, ...]
    engine: tuple[str, ...]
    resident_bytes: tuple[int, ...]
    makespan_ns: int
    base_ns: int
    recompute_ns: int
    stall_ns: int
    tail_ns: int
    stalls: tuple[Stall, ...]
    peak_bytes: int
    tier_peak_bytes: Mapping[str, int]
    busy_ns: Mapping[str, int]
    moved_bytes: Mapping[str, int]
    before_bytes: Mapping[str, int]
    changes: Mapping[str, tuple[Change, ...]]
