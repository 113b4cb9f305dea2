"""The table of collectives: a row for each, with all that is asked about it.

A row says what each rank has before and after, the bytes that cross a link by each algorithm, and the names that other
programs give it. ``docs/collectives.md`` says where the names are from.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Number = TypeVar("Number", float, "NDArray[np.float64]")


class Held(Enum):
    """State of a rank before a collective, or after it. A message has as many parts as there are ranks."""

    NOTHING = "nothing"
    OWN = "a message of its own"
    PART = "its part of one message"
    ROOT = "one message, on one rank alone"
    WHOLE = "one message, the same as all others"
    EACH = "its part of the message of each rank"
    OTHER = "the message of another rank"


class Algorithm(NamedTuple):
    """A way to run a collective among n ranks: the bytes that cross the link of the busiest rank in one direction, over
    those of the message (``sent``), and the ``steps`` that follow each other. A ``symmetric`` one reads the memory of
    all other ranks at a time: it runs only where a program calls it."""

    name: str
    sent: Callable[[Any], Any]
    steps: Callable[[int], int]
    symmetric: bool = False


@dataclass(frozen=True)
class Collective:
    """One collective. Sizes are the bytes of its message: the buffer of each rank (all-reduce), the gathered output,
    the full input (reduce-scatter), all that one rank sends (all-to-all).

    Args:
        has, gets: what each rank has before and after.
        algorithms: the first one sends least.
        torch: ops of PyTorch by namespace, as ``ops_in`` reads them.
        profiler: titles of PyTorch's profiler, without that of the backend (``nccl:``).
        nccl: functions in the names of kernels.
        jax: primitives; after a slash the former names of one, and variants that cost the same.
        hlo, chakra, megatron, deepspeed: names there; ``chakra`` begins with the one that is written.
        like: the collective whose fitted constants are taken, with wider intervals, where it has none of its own.
    """

    name: str
    has: Held
    gets: Held
    algorithms: tuple[Algorithm, ...]
    torch: str = ""
    profiler: str = ""
    nccl: str = ""
    jax: str = ""
    hlo: str = ""
    chakra: str = ""
    megatron: str = ""
    deepspeed: str = ""
    like: str = ""

    @functools.cached_property
    def reduces(self) -> bool:
        """True if it combines the messages of all ranks."""
        return self.has is Held.OWN and self.gets in (Held.WHOLE, Held.PART, Held.ROOT)

    @functools.cached_property
    def divided(self) -> bool:
        """True if the message is divided evenly among the ranks."""
        return not {self.has, self.gets}.isdisjoint((Held.PART, Held.EACH))

    @functools.cached_property
    def joins_two(self) -> bool:
        """True if it joins two ranks, not a group."""
        return (self.has, self.gets) == (Held.ROOT, Held.OTHER)

    def phi(self, ranks: Number) -> Number:
        """Bytes that cross a link in one direction, over those of the message, with the first algorithm."""
        found: Number = self.algorithms[0].sent(ranks)
        return found

    def steps(self, ranks: int) -> int:
        """Steps of the first algorithm."""
        return self.algorithms[0].steps(ranks)

    def padded(self, nbytes: int, ranks: int) -> int:
        """Bytes of a message as libraries move them: where it is divided among ``ranks``, padded to equal parts."""
        return -(-nbytes // ranks) * ranks if self.divided else nbytes

    def names(self) -> Iterator[tuple[str, str]]:
        """Yield each source with a name that it has for the collective."""
        yield from (("torch", name) for name, _ in ops_in(self.torch))
        yield from (("jax", name) for name in re.findall("[^ /]+", self.jax))
        for source in ("profiler", "nccl", "hlo", "chakra", "megatron", "deepspeed"):
            yield from ((source, name) for name in getattr(self, source).split())


def ops_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield the ops that a ``text`` lists, each with the mark of its namespace: the argument that they write, on some
    rank at least, though their schemas do not say so; or ``*`` if they compute a product, too.

    Examples:
        >>> list(ops_in("c10d(tensors): allreduce_; c10d: send"))
        [('c10d::allreduce_', 'tensors'), ('c10d::send', '')]
    """
    for namespace, mark, names in re.findall(r"(\w+)(?:\(([\w*]+)\))?: ([\w ]+)", text):
        yield from ((f"{namespace}::{name}", mark) for name in names.split())


# -- algorithms -------------------------------------------------------------------------------------


def doublings(ranks: int) -> int:
    """The least k with ``ranks <= 2**k``: the hops of a binary tree below a root with one child."""
    return (ranks - 1).bit_length()


def _others(ranks: Any) -> Any:
    """All parts of a message but one."""
    return (ranks - 1) / ranks


def _others_twice(ranks: Any) -> Any:
    return 2 * (ranks - 1) / ranks


def _whole(ranks: Any) -> Any:
    return 1.0 * (ranks > 1)


def _ring(sent: Callable[[Any], Any], turns: int = 1) -> Algorithm:
    """Each rank passes parts on to the next, ``turns`` times around."""
    return Algorithm("ring", sent, lambda ranks: turns * (ranks - 1))


def _tree(passes: int) -> Algorithm:
    """From the root of a tree to its leaves, or back. An inner rank sends to two children; up and down, half of the
    message by each of two trees, so that a rank that is inner in one is a leaf in the other. Of two or three ranks none
    has two children, so it sends less."""
    return Algorithm(
        "tree",
        lambda ranks: (ranks > 1) * (passes * min(ranks, 4) // 2) / passes,
        lambda ranks: passes * doublings(ranks),
    )


_PAIRWISE = Algorithm("direct", _others, lambda ranks: ranks - 1)
"""Each part goes straight to its rank, one partner after the other."""
_STRAIGHT = Algorithm("direct", _whole, lambda ranks: int(ranks > 1))
_ONE_SHOT = Algorithm("one-shot", lambda ranks: ranks - 1.0, lambda ranks: 1, symmetric=True)
_TWO_SHOT = Algorithm("two-shot", _others_twice, lambda ranks: 2, symmetric=True)
_TOKEN = Algorithm("tree", lambda ranks: 0.0, lambda ranks: 2 * doublings(ranks))

# -- the table --------------------------------------------------------------------------------------

_ROWS = (
    Collective(
        "all_reduce", Held.OWN, Held.WHOLE, (_ring(_others_twice, turns=2), _tree(passes=2), _ONE_SHOT, _TWO_SHOT),
        torch="c10d(tensors): allreduce_ allreduce_coalesced_; "
        "_c10d_functional: all_reduce all_reduce_ all_reduce_coalesced all_reduce_coalesced_; "
        "c10d_functional: all_reduce all_reduce_coalesced; "
        "symm_mem: one_shot_all_reduce one_shot_all_reduce_out one_shot_all_reduce_copy one_shot_all_reduce_copy_out "
        "two_shot_all_reduce_ two_shot_all_reduce_out multimem_all_reduce_ multimem_one_shot_all_reduce "
        "multimem_one_shot_all_reduce_out",
        profiler="all_reduce all_reduce_sparse sparse_all_reduce allreduce_coalesced", nccl="AllReduce",
        jax="psum/psum2/psum_invariant/unreduced_psum pmax pmin", hlo="all-reduce all-reduce-start",
        chakra="ALL_REDUCE",
        megatron="_reduce layernorm-grads-all-reduce embedding-grads-all-reduce grads-all-reduce",
        deepspeed="all_reduce inference_all_reduce all_reduce_coalesced",
    ),
    Collective(
        "all_gather", Held.PART, Held.WHOLE, (_ring(_others),),
        torch="c10d(output_tensors): allgather_; c10d(output_tensor): _allgather_base_; "
        "c10d(outputs): allgather_into_tensor_coalesced_; c10d(output_lists): allgather_coalesced_; "
        "_c10d_functional: all_gather_into_tensor all_gather_into_tensor_coalesced all_gather_into_tensor_out; "
        "_c10d_functional_autograd: all_gather_into_tensor; "
        "c10d_functional: all_gather_into_tensor all_gather_into_tensor_coalesced; "
        "symm_mem: multimem_all_gather_out _low_contention_all_gather; "
        "symm_mem(*): fused_all_gather_matmul fused_all_gather_scaled_matmul",
        profiler="all_gather _all_gather_base all_gather_into_tensor_coalesced", nccl="AllGather AllGatherV",
        jax="all_gather/all_gather_invariant/all_gather_reduced", hlo="all-gather all-gather-start",
        chakra="ALL_GATHER", megatron="_gather_along_first_dim _gather_along_last_dim params-all-gather",
        deepspeed="all_gather all_gather_into_tensor allgather_fn all_gather_coalesced",
    ),
    Collective(
        "reduce_scatter", Held.OWN, Held.PART, (_ring(_others),),
        torch="c10d(output_tensors): reduce_scatter_; c10d(output_tensor): _reduce_scatter_base_; "
        "c10d(outputs): reduce_scatter_tensor_coalesced_; "
        "_c10d_functional: reduce_scatter_tensor reduce_scatter_tensor_coalesced reduce_scatter_tensor_out; "
        "_c10d_functional_autograd: reduce_scatter_tensor; "
        "c10d_functional: reduce_scatter_tensor reduce_scatter_tensor_coalesced; "
        "symm_mem: reduce_scatter_out _low_contention_reduce_scatter; symm_mem(out): nccl_reduce_scatter_offset; "
        "symm_mem(*): fused_matmul_reduce_scatter fused_scaled_matmul_reduce_scatter",
        profiler="reduce_scatter _reduce_scatter_base reduce_scatter_tensor_coalesced", nccl="ReduceScatter",
        jax="reduce_scatter/unreduced_reduce_scatter", hlo="reduce-scatter",
        chakra="REDUCE_SCATTER REDUCE_SCATTER_BLOCK",
        megatron="_reduce_scatter_along_first_dim _reduce_scatter_along_last_dim grads-reduce-scatter",
        deepspeed="reduce_scatter reduce_scatter_tensor reduce_scatter_fn",
    ),
    Collective(
        "all_to_all", Held.OWN, Held.EACH, (_PAIRWISE,),
        torch="c10d(output_tensors): alltoall_; c10d(output): alltoall_base_; _c10d_functional: all_to_all_single; "
        "_c10d_functional_autograd: all_to_all_single; c10d_functional: all_to_all_single; "
        "_dtensor: shard_dim_alltoall; "
        "symm_mem: nvshmem_all_to_all all_to_all_vdev all_to_all_vdev_2d all_to_all_vdev_2d_offset",
        profiler="all_to_all", nccl="AllToAllPivot", jax="all_to_all ragged_all_to_all",
        hlo="all-to-all ragged-all-to-all", chakra="ALL_TO_ALL", megatron="_AllToAll",
        deepspeed="all_to_all all_to_all_single",
    ),
    Collective(
        "broadcast", Held.ROOT, Held.WHOLE, (_ring(_whole), _tree(passes=1)), like="all_gather",
        torch="c10d(tensors): broadcast_; _c10d_functional: broadcast broadcast_; c10d_functional: broadcast; "
        "symm_mem: nvshmem_broadcast",
        profiler="broadcast _broadcast_oop", nccl="Broadcast", hlo="collective-broadcast", chakra="BROADCAST",
        megatron="broadcast_data", deepspeed="broadcast",
    ),
    Collective(
        "reduce", Held.OWN, Held.ROOT, (_ring(_whole), _tree(passes=1)), like="reduce_scatter",
        torch="c10d(tensors): reduce_; symm_mem: multimem_one_shot_reduce_out; "
        "symm_mem(out_tile): tile_reduce multi_root_tile_reduce",
        profiler="reduce _reduce_oop", nccl="Reduce", chakra="REDUCE", deepspeed="reduce",
    ),
    Collective(
        "gather", Held.PART, Held.ROOT, (_PAIRWISE,), like="all_gather",
        torch="c10d(output_tensors): gather_", profiler="gather", chakra="GATHER", deepspeed="gather",
    ),
    Collective(
        "scatter", Held.ROOT, Held.PART, (_PAIRWISE,), like="all_gather",
        torch="c10d(output_tensors): scatter_", profiler="scatter", chakra="SCATTER", deepspeed="scatter",
    ),
    Collective(
        "send_recv", Held.ROOT, Held.OTHER, (_STRAIGHT,),
        torch="c10d(tensors): recv_ recv_any_source_; c10d: send; _c10d_functional: irecv isend; "
        "c10d_functional: irecv isend",
        profiler="send recv recvAnySource", nccl="SendRecv", jax="psend precv", hlo="send recv",
        chakra="COMM_SEND_NODE COMM_RECV_NODE",
        megatron="forward-send forward-recv backward-send backward-recv", deepspeed="send recv isend irecv",
    ),
    Collective(
        "permute", Held.OWN, Held.OTHER, (_STRAIGHT,), like="send_recv",
        jax="ppermute", hlo="collective-permute collective-permute-start",
        megatron="forward-send-forward-recv backward-send-backward-recv",
    ),
    Collective(
        "barrier", Held.NOTHING, Held.NOTHING, (_TOKEN,), like="all_reduce",
        torch="c10d: barrier monitored_barrier_", profiler="barrier all_reduce_barrier", chakra="BARRIER",
        deepspeed="barrier monitored_barrier",
    ),
)  # fmt: skip

COLLECTIVES: dict[str, Collective] = {row.name: row for row in _ROWS}
"""Every collective, by name."""
