"""Degrees of parallelism of one training step."""

from __future__ import annotations

import msgspec

from tensortide.errors import DegreesError

_LEAST = {"data": 1, "tensor": 1, "pipeline": 1, "context": 1, "expert": 1, "micro_batches": 1, "zero": 0}


class Degrees(msgspec.Struct, frozen=True, kw_only=True):
    """In how many parts a step is divided along each dimension.

    Args:
        data: replicas, each with its part of the batch.
        tensor: ranks that share the products of every layer.
        pipeline: stages of consecutive modules.
        context: parts of the sequence.
        expert: ranks over which experts are spread.
        zero: what data-parallel ranks shard: 1 optimizer state, 2 gradients too, 3 parameters too.
        micro_batches: parts in which a replica computes its batch, one after the other.

    Raises:
        DegreesError: a degree is no whole number from 1 up, or zero is none of 0, 1, 2, 3.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    zero: int = 0
    micro_batches: int = 1

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise DegreesError(f"{name}={value!r}: it is a whole number, at least {least}")
        if self.zero > 3:
            raise DegreesError(f"zero={self.zero}: its stages are 1, 2 and 3, or 0 for none")

    @property
    def devices(self) -> int:
        """Ranks of the step."""
        return self.data * self.tensor * self.pipeline * self.context

    def __str__(self) -> str:
        names = ("data", "tensor", "pipeline", "context", "expert", "micro_batches")
        parts = [f"{name} {getattr(self, name)}" for name in names if getattr(self, name) > 1]
        return ", ".join([*parts, *([f"ZeRO {self.zero}"] if self.zero else [])]) or "one device"


def check_supported(degrees: Degrees) -> None:
    """Raise DegreesError for degrees by which no Graph is divided yet."""
    for name, what in (("context", "sequences"), ("expert", "experts")):
        if getattr(degrees, name) > 1:
            raise DegreesError(
                f"{name}={getattr(degrees, name)}: graphs are not divided by {what}; the closed form of a transformer "
                "has this degree"
            )
    if degrees.zero and degrees.data == 1:
        raise DegreesError(f"zero={degrees.zero} shards among data-parallel ranks: data=1 has one of them")
