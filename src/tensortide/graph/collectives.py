"""Ops of communication between processes, by name: the arguments that they write, and their part in communication.

Their schemas declare no writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

PROCESS_GROUP = "process group "
"""Before the name of a process group, where an op takes the group itself; functional ones take the name."""


class Part(Enum):
    """The part that an op has in communication."""

    MOVES = "moves data between processes"
    REDUCES = "combines the data of several processes"
    WAITS = "waits for data or for other processes"
    PACKS = "copies data within this process, before or after they are moved"
    NAMES = "names a group or a stream: no data"


@dataclass(frozen=True, slots=True)
class Collective:
    """Facts of a communication op. ``writes``: names of the arguments that it writes, on some rank at least.
    ``by_parts``: a live budget follows the ops that it is made of, one by one."""

    part: Part
    writes: tuple[str, ...] = ()
    by_parts: bool = False


def _rows(namespace: str, part: Part, names: str, *writes: str, by_parts: bool = False) -> dict[str, Collective]:
    return {f"{namespace}::{name}": Collective(part, writes, by_parts) for name in names.split()}


COLLECTIVES: dict[str, Collective] = {
    **_rows("c10d", Part.MOVES, "broadcast_ recv_ recv_any_source_", "tensors"),
    **_rows("c10d", Part.MOVES, "allgather_ alltoall_ gather_ scatter_", "output_tensors"),
    **_rows("c10d", Part.MOVES, "_allgather_base_", "output_tensor"),
    **_rows("c10d", Part.MOVES, "allgather_into_tensor_coalesced_", "outputs"),
    **_rows("c10d", Part.MOVES, "allgather_coalesced_", "output_lists"),
    **_rows("c10d", Part.MOVES, "alltoall_base_", "output"),
    **_rows("c10d", Part.MOVES, "send"),
    **_rows("c10d", Part.REDUCES, "allreduce_ allreduce_coalesced_ reduce_", "tensors"),
    **_rows("c10d", Part.REDUCES, "reduce_scatter_", "output_tensors"),
    **_rows("c10d", Part.REDUCES, "_reduce_scatter_base_", "output_tensor"),
    **_rows("c10d", Part.REDUCES, "reduce_scatter_tensor_coalesced_", "outputs"),
    **_rows("c10d", Part.WAITS, "barrier check_for_nan monitored_barrier_"),
    **_rows(
        "_c10d_functional",
        Part.MOVES,
        "all_gather_into_tensor all_gather_into_tensor_coalesced all_gather_into_tensor_out all_to_all_single "
        "batch_p2p_ops broadcast broadcast_ irecv isend",
        by_parts=True,
    ),
    **_rows(
        "_c10d_functional",
        Part.REDUCES,
        "all_reduce all_reduce_ all_reduce_coalesced all_reduce_coalesced_ reduce_scatter_tensor "
        "reduce_scatter_tensor_coalesced reduce_scatter_tensor_out",
        by_parts=True,
    ),
    **_rows("_c10d_functional", Part.WAITS, "wait_tensor _wrap_tensor_autograd", by_parts=True),
    **_rows("_c10d_functional_autograd", Part.MOVES, "all_gather_into_tensor all_to_all_single", by_parts=True),
    **_rows("_c10d_functional_autograd", Part.REDUCES, "reduce_scatter_tensor", by_parts=True),
    **_rows(
        "c10d_functional",
        Part.MOVES,
        "all_gather_into_tensor all_gather_into_tensor_coalesced all_to_all_single batch_p2p_ops broadcast irecv isend",
        by_parts=True,
    ),
    **_rows(
        "c10d_functional",
        Part.REDUCES,
        "all_reduce all_reduce_coalesced reduce_scatter_tensor reduce_scatter_tensor_coalesced",
        by_parts=True,
    ),
    **_rows("c10d_functional", Part.WAITS, "wait_tensor", by_parts=True),
    **_rows("_dtensor", Part.MOVES, "shard_dim_alltoall", by_parts=True),
    **_rows("_dtensor", Part.NAMES, "mesh_get_process_group", by_parts=True),
    **_rows("fsdp", Part.PACKS, "all_gather_copy_in chunk_cat copy_ split_with_sizes_copy", by_parts=True),
    # since PyTorch 2.15
    **_rows("fsdp", Part.PACKS, "chunk_cat_mixed_dtype", "out"),
    **_rows("fsdp", Part.NAMES, "record_grad_output_stream"),
}
"""Communication ops whose effects are known, by name."""

COMMUNICATION = frozenset({*(name.partition("::")[0] for name in COLLECTIVES), "symm_mem"})
"""Namespaces of ops that communicate. Those of ``symm_mem`` write the memory of other processes."""

_REMOTE = frozenset({"c10d", "_c10d_functional", "symm_mem"})


def named(*parts: Part) -> list[str]:
    """Names of the communication ops that have one of ``parts``."""
    return [name for name, row in COLLECTIVES.items() if row.part in parts]


def writes_of(name: str) -> tuple[str, ...]:
    """Names of the arguments that the communication op ``c10d::allreduce_`` writes, though its schema does not say so;
    none of other ops."""
    row = COLLECTIVES.get(name)
    return () if row is None else row.writes


def moves_data(op: str) -> bool:
    """Return whether the op of a Graph (``c10d.allreduce_.default``) moves data between processes. One that has no row
    does, if it is of a namespace of collectives."""
    namespace, name = op.split(".")[:2]
    row = COLLECTIVES.get(f"{namespace}::{name}")
    return namespace in _REMOTE if row is None else row.part in (Part.MOVES, Part.REDUCES)
