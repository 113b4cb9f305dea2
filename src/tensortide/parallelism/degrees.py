"""Degrees of parallelism of one training step."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from tensortide.errors import DegreesError
from tensortide.shown import Show


class MeshAxis(NamedTuple):
    """An axis of the mesh of ranks. The degree in which it divides a step is the field of its ``name``, its process
    group has that name, and so has its option.

    Args:
        letter: of the degree, where configurations are named.
        seed: module whose ``divide(step, asked)`` makes the step of a rank (empty: stages are cut afterwards).
        exchanged: what its ranks exchange within both passes, in words (empty: nothing).
        has_ranks: the degree multiplies the devices; else it groups ranks of other axes.
    """

    name: str
    letter: str
    seed: str = ""
    exchanged: str = ""
    has_ranks: bool = True


AXES = (
    MeshAxis("data", "d", ".batch"),
    MeshAxis("tensor", "t", ".tensor", "tensor-parallel collectives, exposed"),
    MeshAxis("pipeline", "p"),
    MeshAxis("context", "c", ".context", "exchange of keys and values, exposed"),
    MeshAxis("expert", "x", ".experts", "exchange of tokens with experts", has_ranks=False),
)
"""The axes, in the order in which they divide a step."""
DEGREES = tuple(axis.name for axis in AXES)
"""Fields in which a step is divided; each is at least 1."""
KeysBy: TypeAlias = Literal["gather", "ring", "zigzag"]
"""How keys and values of fused attention come to the queries of all context ranks: gathered, in a ring, or in a ring of
ranks that have two parts of each sequence, which mirror each other."""
ZERO = range(4)
"""Stages of ZeRO, none (0) included."""


class ParallelDegrees(msgspec.Struct, frozen=True, kw_only=True):
    """In how many parts a step is divided along each dimension, unchecked.

    Args:
        data: replicas, each with its part of the batch.
        tensor: ranks that share the products of every layer.
        pipeline: stages of consecutive modules.
        context: parts of the sequence.
        expert: ranks over which experts are spread, of those of data and context.
        zero: what data-parallel ranks shard: 1 optimizer state, 2 gradients too, 3 parameters too.
        zero_group: ranks among which they are sharded, neighbours of data and context; each group has all (0: one
            group of all such ranks).
        sequence: 1 (or True): tensor ranks divide along the sequence what they do not divide otherwise (reduce-scatter
            and all-gather in place of all-reduce).
        kv_group: tensor ranks, neighbours, that share heads of keys and values where there are fewer heads than ranks
            (0: all have all heads, or each its own).
    """

    data: Annotated[int, Show("data")] = 1
    tensor: Annotated[int, Show("tensor")] = 1
    pipeline: Annotated[int, Show("pipeline")] = 1
    context: Annotated[int, Show("context")] = 1
    expert: Annotated[int, Show("expert")] = 1
    zero: int = 0
    zero_group: int = 0
    sequence: int = 0
    kv_group: Annotated[int, Show("kv-group", if_any=True)] = 0
    axes: ClassVar[tuple[MeshAxis, ...]] = AXES

    @property
    def devices(self) -> int:
        """Ranks of the step."""
        return self.stage_ranks() * self.pipeline

    def stage_ranks(self) -> int:
        """Ranks of a stage of the pipeline."""
        return self.replicas * self.model_ranks()

    def model_ranks(self) -> int:
        """Ranks that share the layers of a stage: of tensor, and of further axes."""
        return self.tensor * math.prod(size for _, size in self.further)

    @property
    def further(self) -> list[tuple[str, int]]:
        """Names and degrees of the axes with ranks beside data, tensor, pipeline and context: their ranks share the
        layers of a stage."""
        own = (axis.name for axis in self.axes if axis.has_ranks)
        return [(name, getattr(self, name)) for name in own if name not in ("data", "tensor", "pipeline", "context")]

    @property
    def replicas(self) -> int:
        """Ranks that have the same parameters, experts aside, and average their gradients: of data and context."""
        return self.data * self.context

    @property
    def shards(self) -> int:
        """Ranks among which ZeRO shards."""
        return self.zero_group or self.replicas


class Degrees(ParallelDegrees, frozen=True, kw_only=True):
    """Degrees of a step whose replicas compute their batches in ``micro_batches`` parts, one after the other.

    Context ranks exchange ``keys`` in one of three ways.

    Raises:
        DegreesError: a degree is no whole number from 1 up, or zero is none of 0, 1, 2, 3.
    """

    micro_batches: int = 1
    keys: KeysBy = "gather"

    def __post_init__(self) -> None:
        wrong = [
            *not_whole({name: getattr(self, name) for name in (*self._names, "micro_batches")}, least=1),
            *not_whole({"zero": self.zero, "zero-group": self.zero_group, "kv-group": self.kv_group}, least=0),
        ]
        if self.keys not in get_args(KeysBy):
            wrong.append(f"keys is {self.keys!r}: it is one of {', '.join(get_args(KeysBy))}")
        if self.sequence not in (0, 1):
            wrong.append(f"sequence is {self.sequence}: it is 0 or 1")
        for text in wrong or zero_objections(self.zero, 0, self.replicas, self.expert):
            raise DegreesError(text)

    @property
    def _names(self) -> list[str]:
        return [axis.name for axis in self.axes]

    def in_order(self) -> list[MeshAxis]:
        """The axes in the order in which they divide a step: that of tensor ranks last if it has parts of sequences,
        which are parts of those that context ranks have, around what goes to experts."""
        return sorted(self.axes, key=lambda axis: self.sequence > 0 and axis.name == "tensor")

    def groups(self, rank: int) -> dict[str, tuple[int, ...]]:
        """The ranks of every process group of ``rank``: tensor ranks are neighbours, then those of further axes, then
        context and data ranks, among which experts are spread, then stages."""
        return {name: tuple(ranks) for name, ranks in self._groups(rank).items()}

    def _groups(self, rank: int) -> dict[str, range]:
        """The groups of ``rank``, each as evenly spaced ranks: the distance between neighbours, and their number."""
        t, kv, zero = self.model_ranks(), self.kv_group, self.zero_group
        spaced = {
            "tensor": (1, self.tensor),
            "context": (t, self.context),
            "data": (t, self.replicas),
            "expert": (t, self.expert),
            "expert_data": (t * self.expert, self.replicas // self.expert),
            "pipeline": (self.stage_ranks(), self.pipeline),
        }
        apart = self.tensor
        for name, size in self.further:
            spaced[name] = apart, size
            apart *= size
        if kv:
            spaced |= {"tensor_within": (1, kv), "tensor_across": (kv, self.tensor // kv)}
        if zero:
            spaced |= {"zero": (t, zero), "zero_data": (t * zero, self.replicas // zero)}
        found = {"world": range(self.devices)}
        for name, (step, size) in spaced.items():
            first = rank - rank // step % size * step
            found[name] = range(first, first + size * step, step)
        return found

    def across(self, rank: int, stages: Sequence[int]) -> tuple[int, ...]:
        """The ranks that have the place of ``rank`` in each of these pipeline stages."""
        inner = self.stage_ranks()
        return tuple(stage * inner + rank % inner for stage in stages)

    @functools.lru_cache(maxsize=64)  # noqa: B019 - frozen, and compared by its fields
    def groups_of_stage(self) -> dict[str, tuple[tuple[int, ...], ...]]:
        """The groups of each dimension among the ranks of the first stage, in the order of their first ranks."""
        found: dict[str, dict[range, None]] = {}
        for rank in range(self.stage_ranks()):
            for name, ranks in self._groups(rank).items():
                found.setdefault(name, {})[ranks] = None
        return {name: tuple(map(tuple, groups)) for name, groups in found.items()}

    def __str__(self) -> str:
        names = (*self._names, "micro_batches")
        parts = [f"{name} {getattr(self, name)}" for name in names if getattr(self, name) > 1]
        sharded = f"ZeRO {self.zero}" + (f" in groups of {self.zero_group}" if self.zero_group else "")
        shared = [f"heads of keys shared by {self.kv_group}"] * (self.kv_group > 0)
        others = shared + [sharded] * (self.zero > 0) + ["sequence parallel"] * (self.sequence > 0 and self.tensor > 1)
        others += [f"keys by {self.keys}"] * (self.keys != "gather" and self.context > 1)
        return ", ".join([*parts, *others]) or "one device"


def check_supported(degrees: Degrees) -> None:
    """Raise DegreesError for degrees that contradict each other."""
    wrong = [*nothing_to_shard(degrees)]
    if degrees.keys != "gather" and degrees.context == 1:
        wrong.append(f"keys by {degrees.keys}: context is 1")
    wrong += uneven_heads(degrees)
    if degrees.kv_group and degrees.sequence:
        wrong.append("kv-group: sequence parallelism of a captured step goes without sub-groups of tensor ranks")
    wrong += zero_objections(degrees.zero, degrees.zero_group, degrees.replicas, degrees.expert)
    for text in (*wrong, *uneven_experts(degrees)):
        raise DegreesError(text)


def not_whole(counts: Mapping[str, object], least: int = 1) -> Iterator[str]:
    """Yield each of ``counts`` (None: not given) that is no whole number from ``least`` up, in words."""
    for name, count in counts.items():
        what = f"{name.replace('_', '-')} is {count!r}"
        if count is None:
            continue
        if isinstance(count, bool) or not isinstance(count, int):
            yield f"{what}: it is a whole number"
        elif count < least:
            yield f"{what}: it is at least {least}"


def zero_objections(zero: int, group: int, replicas: int, expert: int) -> Iterator[str]:
    """Yield each fault of ZeRO in groups of ``group`` ranks (0: none are asked for), in words."""
    if zero not in ZERO:
        yield f"zero is {zero}: it is 0 to 3"
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


def nothing_to_shard(one: ParallelDegrees) -> Iterator[str]:
    """The reason why ZeRO has nothing to shard among, in words."""
    if one.zero and one.replicas == 1:
        yield f"ZeRO {one.zero} shards over replicas: data is 1"


def uneven_heads(one: ParallelDegrees) -> Iterator[str]:
    """The reason why tensor ranks do not share heads of keys and values in sub-groups, in words."""
    if one.kv_group and (one.tensor % one.kv_group or one.kv_group in (1, one.tensor)):
        quotient = f"{one.tensor}/{one.kv_group}"
        yield f"groups of heads: tensor / kv-group = {quotient} are not several groups of several ranks"


def uneven_experts(one: ParallelDegrees) -> Iterator[str]:
    """The quotient of data and context ranks among which experts are not spread evenly, in words."""
    if one.replicas % one.expert:
        yield f"groups of experts: data * context / expert = {one.replicas}/{one.expert} is no whole number"
