"""Degrees of parallelism of one training step."""

from __future__ import annotations

import functools

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

    @property
    def replicas(self) -> int:
        """Ranks that have the same parameters, experts aside, and average their gradients: of data and context."""
        return self.data * self.context

    def groups(self, rank: int) -> dict[str, tuple[int, ...]]:
        """The ranks of every process group of ``rank``: tensor ranks are neighbours, then context and data ranks, among
        which experts are spread, then stages."""
        return {name: tuple(ranks) for name, ranks in self._groups(rank).items()}

    def _groups(self, rank: int) -> dict[str, range]:
        """The groups of ``rank``, each as evenly spaced ranks."""
        t, inner = self.tensor, self.replicas * self.tensor
        within = rank % inner
        replica, tensor = divmod(within, t)
        first = rank - within + tensor
        context, expert = (replica // size * size for size in (self.context, self.expert))
        return {
            "world": range(self.devices),
            "tensor": range(rank - tensor, rank - tensor + t),
            "context": range(first + context * t, first + (context + self.context) * t, t),
            "data": range(first, first + inner, t),
            "expert": range(first + expert * t, first + (expert + self.expert) * t, t),
            "expert_data": range(first + replica % self.expert * t, first + inner, self.expert * t),
            "pipeline": range(within, self.devices, inner),
        }

    @functools.lru_cache(maxsize=64)  # noqa: B019 - frozen, and compared by its fields
    def groups_of_stage(self) -> dict[str, tuple[tuple[int, ...], ...]]:
        """The groups of each dimension among the ranks of the first stage, in the order of their first ranks."""
        found: dict[str, dict[range, None]] = {}
        for rank in range(self.replicas * self.tensor):
            for name, ranks in self._groups(rank).items():
                found.setdefault(name, {})[ranks] = None
        return {name: tuple(map(tuple, groups)) for name, groups in found.items()}

    def __str__(self) -> str:
        names = ("data", "tensor", "pipeline", "context", "expert", "micro_batches")
        parts = [f"{name} {getattr(self, name)}" for name in names if getattr(self, name) > 1]
        return ", ".join([*parts, *([f"ZeRO {self.zero}"] if self.zero else [])]) or "one device"


def check_supported(degrees: Degrees) -> None:
    """Raise DegreesError for degrees that contradict each other."""
    if degrees.zero and degrees.replicas == 1:
        raise DegreesError(f"zero={degrees.zero} shards among data-parallel ranks: data=1 has one of them")
    if degrees.replicas % degrees.expert:
        raise DegreesError(
            f"groups of experts: data * context / expert = {degrees.replicas}/{degrees.expert} is no whole number"
        )
