"""Degrees of parallelism of one training step."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tensortide.errors import DegreesError

_LEAST = {
    **dict.fromkeys(("data", "tensor", "pipeline", "context", "expert", "micro_batches"), 1),
    **dict.fromkeys(("zero", "zero_group", "sequence", "kv_group"), 0),
}


class Degrees(msgspec.Struct, frozen=True, kw_only=True):
    """In how many parts a step is divided along each dimension.

    Args:
        data: replicas, each with its part of the batch.
        tensor: ranks that share the products of every layer.
        pipeline: stages of consecutive modules.
        context: parts of the sequence.
        expert: ranks over which experts are spread.
        zero: what data-parallel ranks shard: 1 optimizer state, 2 gradients too, 3 parameters too.
        zero_group: ranks among which they are sharded, neighbours of data and context; each group has all (0: one
            group of all such ranks).
        sequence: 1: tensor ranks divide along the sequence what they do not divide otherwise.
        kv_group: tensor ranks, neighbours, that share heads of keys and values where there are fewer heads than ranks
            (0: all have all heads, or each its own).
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
    zero_group: int = 0
    sequence: int = 0
    kv_group: int = 0
    micro_batches: int = 1

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise DegreesError(f"{name}={value!r}: it is a whole number, at least {least}")
        if self.sequence > 1:
            raise DegreesError(f"sequence={self.sequence}: it is 0 or 1")
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

    @property
    def shards(self) -> int:
        """Ranks among which ZeRO shards."""
        return self.zero_group or self.replicas

    def groups(self, rank: int) -> dict[str, tuple[int, ...]]:
        """The ranks of every process group of ``rank``: tensor ranks are neighbours, then context and data ranks, among
        which experts are spread, then stages."""
        inner = self.replicas * self.tensor
        stage, within = divmod(rank, inner)
        replica, tensor = divmod(within, self.tensor)
        members = {
            "tensor": [(replica, t) for t in range(self.tensor)],
            "context": [(replica // self.context * self.context + i, tensor) for i in range(self.context)],
            "data": [(i, tensor) for i in range(self.replicas)],
            "expert": [(replica // self.expert * self.expert + i, tensor) for i in range(self.expert)],
            "expert_data": [(i, tensor) for i in range(replica % self.expert, self.replicas, self.expert)],
        }
        if self.kv_group:
            first = tensor // self.kv_group * self.kv_group
            members["tensor_within"] = [(replica, first + i) for i in range(self.kv_group)]
            members["tensor_across"] = [(replica, t) for t in range(tensor % self.kv_group, self.tensor, self.kv_group)]
        if self.zero_group:
            first = replica // self.zero_group * self.zero_group
            members["zero"] = [(first + i, tensor) for i in range(self.zero_group)]
            same = range(replica % self.zero_group, self.replicas, self.zero_group)
            members["zero_data"] = [(i, tensor) for i in same]
        found = {name: tuple(stage * inner + r * self.tensor + t for r, t in ranks) for name, ranks in members.items()}
        pipeline = tuple(range(within, self.devices, inner))
        return {"world": tuple(range(self.devices)), **found, "pipeline": pipeline}

    def __str__(self) -> str:
        names = ("data", "tensor", "pipeline", "context", "expert", "micro_batches")
        parts = [f"{name} {getattr(self, name)}" for name in names if getattr(self, name) > 1]
        sharded = f"ZeRO {self.zero}" + (f" in groups of {self.zero_group}" if self.zero_group else "")
        shared = [f"heads of keys shared by {self.kv_group}"] * (self.kv_group > 0)
        others = shared + [sharded] * (self.zero > 0) + ["sequence parallel"] * (self.sequence > 0 and self.tensor > 1)
        return ", ".join([*parts, *others]) or "one device"


def check_supported(degrees: Degrees) -> None:
    """Raise DegreesError for degrees that contradict each other."""
    if degrees.zero and degrees.replicas == 1:
        raise DegreesError(f"zero={degrees.zero} shards among data-parallel ranks: data=1 has one of them")
    if degrees.sequence and degrees.tensor > 1 and degrees.context > 1:
        raise DegreesError(
            "sequence parallelism of a captured step goes without context ranks, which divide it already"
        )
    if degrees.kv_group and (degrees.tensor % degrees.kv_group or degrees.kv_group in (1, degrees.tensor)):
        raise DegreesError(
            f"groups of heads: tensor / kv_group = {degrees.tensor}/{degrees.kv_group} are not several groups of "
            "several ranks"
        )
    if degrees.kv_group and degrees.sequence:
        raise DegreesError("kv_group: sequence parallelism goes without sub-groups of tensor ranks")
    for wrong in group_objections(degrees.zero, degrees.zero_group, degrees.replicas, degrees.expert):
        raise DegreesError(wrong)
    if degrees.replicas % degrees.expert:
        raise DegreesError(
            f"groups of experts: data * context / expert = {degrees.replicas}/{degrees.expert} is no whole number"
        )


def group_objections(zero: int, group: int, replicas: int, expert: int) -> Iterator[str]:
    """Yield each fault of groups of ``group`` ranks among which ZeRO shards (0: none are asked for), in words."""
    if not group:
        return
    if not zero:
        yield f"zero-group is {group}: groups shard with ZeRO 1, 2 or 3"
    if group < 2:
        yield f"zero-group is {group}: a group of one shards nothing"
    elif replicas % group:
        yield f"groups of ZeRO: data * context / zero-group = {replicas}/{group} is no whole number"
    if expert > 1:
        yield "zero-group: experts are sharded over all ranks that have the same ones, not in groups"
