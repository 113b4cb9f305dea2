"""A request: a cluster and a batch, what of the configuration is given, and the candidates for the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product

import msgspec
from msgspec.structs import replace

from tensortide.errors import DegreesError
from tensortide.parallelism.closed.configuration import Configuration
from tensortide.parallelism.degrees import not_whole, zero_objections
from tensortide.parallelism.pipelines import SCHEDULES
from tensortide.timing.collectives import Cluster

MICRO_BATCHES, FEW = (1, 2, 4, 8, 16), (1, 2, 4)
"""Micro-batches that are tried: so many samples, and so many parts of the batch of a replica."""
MOST_CHUNKS = 8


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A question to the study. A degree that is None is searched.

    Args:
        cluster: all of its devices take part.
        base: everything that is not searched: batch, schedule, recomputation, ZeRO, overlap.
        data, tensor, pipeline, micro_batch, chunks: given degrees; ``chunks`` of schedules that have several on a rank.
        kv_group: tensor ranks that share heads of keys and values, 0 if none do; where it is None, also the sub-groups
            that the workload has for a number of tensor ranks are tried.
        every_context, every_expert: search these degrees too; those of ``base`` are given otherwise.
        memory_bytes: what a device has for the step (None: unknown, nothing is refused for it).
        price_per_hour: of a device, in any currency.

    Raises:
        DegreesError: what is given contradicts itself, whatever is searched.
    """

    cluster: Cluster
    base: Configuration
    data: int | None = None
    tensor: int | None = None
    pipeline: int | None = None
    micro_batch: int | None = None
    chunks: int | None = None
    kv_group: int | None = None
    every_context: bool = False
    every_expert: bool = False
    memory_bytes: int | None = None
    price_per_hour: float | None = None

    def __post_init__(self) -> None:
        base = self.base
        given = {name: getattr(self, name) for name in ("data", "tensor", "pipeline", "micro_batch", "chunks")}
        wrong = [*not_whole({"batch": base.batch, **given, "context": base.context, "expert": base.expert})]
        wrong += not_whole({"kv_group": self.kv_group}, least=0)
        wrong += zero_objections(base.zero, base.zero_group, base.zero_group or 1, base.expert)
        if self.chunks is not None and self.chunks >= 1:
            wrong += SCHEDULES[base.schedule].chunk_faults(self.chunks)
        if not wrong and self.cluster.size % base.context:
            wrong.append(f"devices / context = {self.cluster.size}/{base.context} is no whole number")
        if wrong:
            raise DegreesError("; ".join(wrong))

    def candidates(
        self, layers: int, kv_groups: Callable[[Configuration], Sequence[int]] = lambda one: ()
    ) -> Iterator[Configuration]:
        """Every way to divide the devices that the given degrees leave; ``layers`` bound the chunks, ``kv_groups`` are
        those of a configuration.

        Raises DegreesError if the given degrees leave none.
        """
        devices = self.cluster.size
        found = 0
        for context, data, tensor, pipeline in self._degrees(devices):
            own = product(self._micro_batches(data), self._chunks(layers, pipeline), self._experts(data * context))
            for micro_batch, chunks, expert in own:
                found += 1
                schedule = SCHEDULES[self.base.schedule]
                few = pipeline < schedule.least_ranks and self.chunks is None
                one = replace(
                    self.base,
                    data=data,
                    tensor=tensor,
                    pipeline=pipeline,
                    context=context,
                    expert=expert,
                    micro_batch=micro_batch,
                    chunks=chunks,
                    schedule=(schedule.alone if few else None) or schedule.name,
                )
                groups = (0, *kv_groups(one)) if self.kv_group is None else (self.kv_group,)
                yield from (replace(one, kv_group=size) for size in groups)
        if not found:
            raise DegreesError(self._why_none(devices if self.every_context else devices // self.base.context))

    def _degrees(self, devices: int) -> Iterator[tuple[int, int, int, int]]:
        for context in divisors(devices) if self.every_context else (self.base.context,):
            inner = devices // context
            for tensor, pipeline in product(divisors(inner), repeat=2):
                data, rest = divmod(inner, tensor * pipeline)
                given = zip((self.data, self.tensor, self.pipeline), (data, tensor, pipeline), strict=True)
                if not rest and all(asked in (None, one) for asked, one in given):
                    yield context, data, tensor, pipeline

    def _experts(self, replicas: int) -> Sequence[int]:
        return divisors(replicas) if self.every_expert else (self.base.expert,)

    def _micro_batches(self, data: int) -> Sequence[int]:
        if self.micro_batch is not None:
            return (self.micro_batch,)
        own = self.base.batch // data
        sizes = {*MICRO_BATCHES, *(own // parts for parts in FEW)}
        return sorted(size for size in sizes if size == 1 or (size and self.base.batch % (data * size) == 0))

    def _chunks(self, layers: int, pipeline: int) -> Sequence[int]:
        if self.chunks is not None:
            return (self.chunks,)
        schedule = SCHEDULES[self.base.schedule]
        if not schedule.has_chunks or pipeline < schedule.least_ranks:
            return (1,)
        least, most = schedule.least_chunks, min(MOST_CHUNKS, schedule.most_chunks or MOST_CHUNKS)
        return [chunks for chunks in divisors(max(1, layers // pipeline)) if least <= chunks <= most] or [least]

    def _why_none(self, devices: int) -> str:
        given = {"data": self.data, "tensor": self.tensor, "pipeline": self.pipeline}
        known = {name: degree for name, degree in given.items() if degree is not None}
        text = " * ".join(known)
        value = " * ".join(map(str, known.values()))
        if len(known) == len(given):
            return f"{text} = {value}: there are {devices} devices for them"
        return f"devices / ({text}) = {devices}/({value}) is no whole number"


def divisors(number: int) -> list[int]:
    """Divisors of ``number`` in ascending order."""
    return [one for one in range(1, number + 1) if number % one == 0]
