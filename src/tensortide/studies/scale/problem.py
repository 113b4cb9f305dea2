"""A problem: nodes and a batch, what of the configuration is given, and the candidates for the rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from tensortide.errors import DegreesError
from tensortide.parallelism.closed.configuration import Configuration
from tensortide.parallelism.degrees import AXES, zero_objections
from tensortide.parallelism.pipelines import SCHEDULES
from tensortide.parallelism.pipelines.schedules import with_chunks
from tensortide.request import Opt, Request
from tensortide.timing.collectives import Nodes

MICRO_BATCHES, FEW = (1, 2, 4, 8, 16), (1, 2, 4)
"""Micro-batches that are tried: so many samples, and so many parts of the batch of a replica."""
MOST_CHUNKS = 8
DIVIDED = ("data", "tensor", "pipeline")
"""Degrees that are searched unless they are given."""
BESIDE = tuple(axis.name for axis in AXES if axis.has_ranks and axis.name not in DIVIDED)
"""Degrees with devices of their own that are 1 unless they are given, or searched."""
Searched: TypeAlias = int | Literal["search"]
"""A degree that is 1 unless it is given or searched."""


@dataclass(frozen=True, kw_only=True)
class DegreeRequest(Request):
    """Degrees of parallelism; those that are not given are searched."""

    GROUP = "Degrees of parallelism"

    data: Annotated[
        int | None,
        Opt("Replicas of the model, such as 8, which divide the batch (default: searched).", least=1, common=True),
    ] = None
    tensor: Annotated[
        int | None, Opt("Devices that divide every layer, such as 4 (default: searched).", least=1, common=True)
    ] = None
    pipeline: Annotated[
        int | None,
        Opt("Devices that divide the layers into stages, such as 4 (default: searched).", least=1, common=True),
    ] = None
    micro_batch: Annotated[int | None, Opt("Samples in a micro-batch (default: searched).", least=1)] = None
    chunks: Annotated[
        int | None, Opt(f"Parts of a pipeline rank ({', '.join(with_chunks())}) (default: searched).", least=1)
    ] = None
    kv_group: Annotated[
        int | None,
        Opt(
            "Tensor ranks that share heads of keys and values where they outnumber them, or 0 (default: searched).",
            least=0,
        ),
    ] = None
    context: Annotated[Searched, Opt("Ranks that divide the sequence: a number (default: 1), or search.", least=1)] = 1
    expert: Annotated[Searched, Opt("Ranks that divide the experts: a number (default: 1), or search.", least=1)] = 1


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A question to the study.

    Args:
        nodes: all of its devices take part.
        base: everything that is not searched: batch, schedule, recomputation, ZeRO, overlap.
        degrees: those given; ``chunks`` of schedules that have several on a rank. Where ``kv_group`` is None, also the
            sub-groups that the workload has for a number of tensor ranks are tried.
        memory_bytes: what a device has for the step (None: unknown, nothing is refused for it).
        price_per_hour: of a device, in any currency.

    Raises:
        DegreesError: what is given contradicts itself, whatever is searched.
    """

    nodes: Nodes
    base: Configuration
    degrees: DegreeRequest = DegreeRequest()
    memory_bytes: int | None = None
    price_per_hour: float | None = None

    def __post_init__(self) -> None:
        base, degrees = self.base, self.degrees
        wrong = [*zero_objections(base.zero, base.zero_group, base.zero_group or 1, known(degrees.expert))]
        if degrees.chunks is not None:
            wrong += SCHEDULES[base.schedule].chunk_faults(degrees.chunks)
        given = {name: known(getattr(degrees, name)) for name in BESIDE}
        if not wrong and self.nodes.size % math.prod(given.values()):
            values = " * ".join(map(str, given.values()))
            wrong.append(f"devices / {' * '.join(given)} = {self.nodes.size}/{values} is no whole number")
        if wrong:
            raise DegreesError("; ".join(wrong))

    def candidates(
        self, layers: int, kv_groups: Callable[[Configuration], Sequence[int]] = lambda one: ()
    ) -> Iterator[Configuration]:
        """Every way to divide the devices that the given degrees leave; ``layers`` bound the chunks, ``kv_groups`` are
        those of a configuration.

        Raises DegreesError if the given degrees leave none.
        """
        found = 0
        for degrees in self._degrees():
            one = replace(self.base, **degrees)
            data, pipeline = one.data, one.pipeline
            own = product(
                self._micro_batches(data), self._chunks(layers, pipeline), _choices(self.degrees.expert, one.replicas)
            )
            for micro_batch, chunks, expert in own:
                found += 1
                schedule = SCHEDULES[self.base.schedule]
                few = pipeline < schedule.least_ranks and self.degrees.chunks is None
                one = replace(
                    one,
                    expert=expert,
                    micro_batch=micro_batch,
                    chunks=chunks,
                    schedule=(schedule.alone if few else None) or schedule.name,
                )
                shared = self.degrees.kv_group
                groups = (0, *kv_groups(one)) if shared is None else (shared,)
                yield from (replace(one, kv_group=size) for size in groups)
        if not found:
            raise DegreesError(
                self._why_none(self.nodes.size // math.prod(known(getattr(self.degrees, name)) for name in BESIDE))
            )

    def _degrees(self) -> Iterator[dict[str, int]]:
        asked = self.degrees.data, self.degrees.tensor, self.degrees.pipeline
        for beside in product(*(_choices(getattr(self.degrees, name), self.nodes.size) for name in BESIDE)):
            inner, left = divmod(self.nodes.size, math.prod(beside))
            if left:
                continue
            for tensor, pipeline in product(divisors(inner), repeat=2):
                data, rest = divmod(inner, tensor * pipeline)
                given = zip(asked, (data, tensor, pipeline), strict=True)
                if not rest and all(degree in (None, one) for degree, one in given):
                    own = {"data": data, "tensor": tensor, "pipeline": pipeline}
                    yield own | dict(zip(BESIDE, beside, strict=True))

    def _micro_batches(self, data: int) -> Sequence[int]:
        if self.degrees.micro_batch is not None:
            return (self.degrees.micro_batch,)
        own = self.base.batch // data
        sizes = {*MICRO_BATCHES, *(own // parts for parts in FEW)}
        return sorted(size for size in sizes if size == 1 or (size and self.base.batch % (data * size) == 0))

    def _chunks(self, layers: int, pipeline: int) -> Sequence[int]:
        if self.degrees.chunks is not None:
            return (self.degrees.chunks,)
        schedule = SCHEDULES[self.base.schedule]
        if not schedule.has_chunks or pipeline < schedule.least_ranks:
            return (1,)
        least, most = schedule.least_chunks, min(MOST_CHUNKS, schedule.most_chunks or MOST_CHUNKS)
        return [chunks for chunks in divisors(max(1, layers // pipeline)) if least <= chunks <= most] or [least]

    def _why_none(self, devices: int) -> str:
        names = DIVIDED
        given = {name: degree for name in names if (degree := getattr(self.degrees, name)) is not None}
        text = " * ".join(given)
        value = " * ".join(map(str, given.values()))
        if len(given) == len(names):
            return f"{text} = {value}: there are {devices} devices for them"
        return f"devices / ({text}) = {devices}/({value}) is no whole number"


def known(degree: Searched) -> int:
    """A degree that is given; 1 for one that is searched."""
    return 1 if degree == "search" else degree


def _choices(degree: Searched, most: int) -> Sequence[int]:
    return divisors(most) if degree == "search" else (degree,)


def divisors(number: int) -> list[int]:
    """Divisors of ``number`` in ascending order."""
    return [one for one in range(1, number + 1) if number % one == 0]
